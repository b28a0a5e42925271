"""The network to train and the data to train it on."""

from mimdsim.base.user_code import allow_code
from mimdsim.workload.data.dataset import SpikeDataset, input_shape, open_dataset
from mimdsim.workload.description.from_keys import Network
from mimdsim.workload.description.mapping import MappingOptions, Split, write_mapping_file
from mimdsim.workload.description.network import capacities_of, filled_activity, network_of
from mimdsim.workload.description.unread import unread_keys
from mimdsim.workload.description.workload import Workload, find_workload, inputs_of, list_workloads, load_workload
from mimdsim.workload.interchange.layers import given_weights
from mimdsim.workload.interchange.own_events import from_events
from mimdsim.workload.interchange.own_values import from_values

__all__ = [
    "MappingOptions",
    "Network",
    "SpikeDataset",
    "Split",
    "Workload",
    "allow_code",
    "capacities_of",
    "filled_activity",
    "find_workload",
    "from_events",
    "from_values",
    "given_weights",
    "input_shape",
    "inputs_of",
    "list_workloads",
    "load_workload",
    "network_of",
    "open_dataset",
    "unread_keys",
    "write_mapping_file",
]
