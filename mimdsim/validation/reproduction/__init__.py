"""The claims of the two papers that this project begins from, computed."""

from mimdsim.validation.reproduction.claims import Claim, Reproduction, reproduce

__all__ = ["Claim", "Reproduction", "reproduce"]
