"""The model and the rules' CEL → CustomResourceDefinition."""

from kvpp_operator.crd.definition import definitions

__all__ = ["definitions"]
