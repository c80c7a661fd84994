"""Demonstrations that use the toolkit and that nothing in it needs: what a course, a paper or a first look asks for.

views       lectures on a layer or a formula, computed on networks of their own (`seriatim inspect MODEL --growth`)
synthetic   data sets that are generated from a seed (`--data adding:200`)
reproduce   published tables, trained again
demo        models of every generation on one page

Tables below name these modules, as entry points do, and import them when they are used: `inspect.VIEWS` the views,
`data.catalogue.generated` the generators.
"""
