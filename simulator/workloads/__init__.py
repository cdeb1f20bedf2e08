"""What is generated. One file per workload; `base` says what a workload is."""

from .base import Workload
from .cpu import Cpu
from .temperature import Temperature

WORKLOADS: dict[str, type[Workload]] = {workload.name: workload for workload in (Temperature, Cpu)}
