"""Data-parallel training over the processes of an MPI job: MPI."""

from minidl.distributed.mpi import MPI

__all__ = ["MPI"]
