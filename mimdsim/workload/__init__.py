"""The network to train and the data to train it on."""

from mimdsim.workload.describe import Workload, find_workload, list_workloads, load_workload
from mimdsim.workload.filled import filled_activity
from mimdsim.workload.inputs import inputs_of
from mimdsim.workload.interchange.start import given_weights
from mimdsim.workload.mapping import MappingOptions, Split
from mimdsim.workload.mapping_file import write_mapping_file
from mimdsim.workload.network import capacities_of, network_of
from mimdsim.workload.sources.dataset import SpikeDataset, input_shape, open_dataset

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
