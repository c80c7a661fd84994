"""YAML of settings files, read within limits: no keys that come twice, deep nesting, or aliases that multiply."""

from __future__ import annotations

import yaml
from yaml.error import MarkedYAMLError

MAX_YAML_VALUES = 100_000  # with every alias written out
MAX_YAML_DEPTH = 50
MAX_DIGITS = 100


class Loader(yaml.SafeLoader):
    """Refuses what a settings file has no use for: keys that come twice, deep nesting, aliases that multiply."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > MAX_YAML_DEPTH:
            mark = self.peek_event().start_mark
            raise MarkedYAMLError(problem=f"nested more than {MAX_YAML_DEPTH} deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            self._count(node, 1, {})
        return node

    def _count(self, node: yaml.Node, depth: int, counts: dict[int, int]) -> int:
        """Returns the number of values in a node; an alias is the same node again."""
        if id(node) in counts:
            return counts[id(node)]
        if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
            raise MarkedYAMLError(problem=f"a number of more than {MAX_DIGITS} digits", problem_mark=node.start_mark)
        if depth > MAX_YAML_DEPTH:
            raise MarkedYAMLError(problem="an alias inside of what it stands for", problem_mark=node.start_mark)
        inner = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            inner = [value for _, value in node.value]
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if len(keys) < len(node.value) or len(keys) > len(set(keys)):
                twice = next((key for key in keys if keys.count(key) > 1), None)
                problem = "a key that is no name" if twice is None else f'the key "{twice}" comes twice'
                raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        total = 1 + sum(self._count(value, depth + 1, counts) for value in inner)
        if total > MAX_YAML_VALUES:
            problem = f"more than {MAX_YAML_VALUES:,} values, with aliases written out"
            raise MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        counts[id(node)] = total
        return total


def parse_yaml(text: str) -> object:
    """Returns the values of a YAML text; raises yaml.YAMLError, or ValueError for numbers and times out of range."""
    try:
        return yaml.load(text, Loader)
    except (AttributeError, LookupError, TypeError):  # of PyYAML, as for `!!bool 7`
        raise MarkedYAMLError(problem="a value that does not fit its tag") from None
