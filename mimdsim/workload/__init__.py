"""The network to train and the data to train it on."""

from mimdsim.workload.data.dataset import SpikeDataset, input_shape, open_dataset
from mimdsim.workload.description.filled import filled_activity
from mimdsim.workload.description.inputs import inputs_of
from mimdsim.workload.description.mapping import MappingOptions, Split
from mimdsim.workload.description.mapping_file import write_mapping_file
from mimdsim.workload.description.network import capacities_of, network_of
from mimdsim.workload.description.workload import Workload, find_workload, list_workloads, load_workload
from mimdsim.workload.interchange.start import given_weights

__all__ = [
    "MappingOptions",
    "SpikeDataset",
    "Split",
    "Workload",
    "capacities_of",
    "filled_activity",
    "find_workload",
    "given_weights",
    "input_shape",
    "inputs_of",
    "list_workloads",
    "load_workload",
    "network_of",
    "open_dataset",
    "write_mapping_file",
]
