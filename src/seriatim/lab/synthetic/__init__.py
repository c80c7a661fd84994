"""The generators of the synthetic data sets, which `data.catalogue.generated` names."""
