"""The ranks that compute one model together, and what they exchange in a forward: torch.distributed, NCCL on CUDA and gloo on CPU.

A rank that ends is noticed by its socket to rank 0 (ranks.py, worker.py). The time limit here is for one that lives and hangs. NCCL has not run on GPUs yet.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from llmendpoint_server.errors import BadConfiguration

HOST = "127.0.0.1"
COLLECTIVE_SECONDS = 300.0
"""The longest that a rank waits for the others: they read one disk, so their starts differ by less."""
_ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""Defaults. All ranks are in one pod: nothing listens on its network."""


@dataclass(slots=True)
class Begun:
    """How many collectives this rank has begun in a step. Ranks whose steps raise after as many are in step with each other."""

    collectives: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """This process's place among `size` ranks."""

    rank: int
    size: int
    device: torch.device
    begun: Begun = field(default_factory=Begun)

    def add(self, part: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' tensors, in place if it can be."""
        self.begun.collectives += 1
        whole = part.contiguous()
        dist.all_reduce(whole)
        return whole

    def join_columns(self, part: torch.Tensor, width: int) -> torch.Tensor:
        """All ranks' columns `[..., columns]` beside each other. Each has as many but the last ones, which may have fewer; `width`: of
        all."""
        self.begun.collectives += 1
        most = -(-width // self.size)
        padded = torch.nn.functional.pad(part, (0, most - part.shape[-1])).contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return torch.cat(parts, -1)[..., :width]

    def columns(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's share of the last dimension."""
        most = -(-whole.shape[-1] // self.size)
        return whole[..., self.rank * most : (self.rank + 1) * most]

    def least(self, number: int) -> int:
        """The smallest of all ranks' numbers."""
        held = torch.tensor([number], dtype=torch.int64, device=self.device)
        dist.all_reduce(held, op=dist.ReduceOp.MIN)
        return int(held.item())


def open_store(size: int) -> TCPStore:
    """Where ranks find each other, on a free port of this machine. Rank 0 opens it, before the others start."""
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
    limit = timedelta(seconds=COLLECTIVE_SECONDS)
    # Of its own it listens on all of the pod's addresses, whatever its host is: anybody could write what ranks tell each other.
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    return TCPStore(
        HOST,
        port,
        size,
        is_master=True,
        timeout=limit,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def join(rank: int, size: int, device: torch.device, store: TCPStore | None, port: int) -> Group:
    """Wait for all ranks. `store`: None in all but rank 0, which opened it on `port`."""
    limit = timedelta(seconds=COLLECTIVE_SECONDS)
    if store is None:
        os.environ.update({name: value for name, value in _ENVIRONMENT.items() if name not in os.environ})
        store = TCPStore(HOST, port, size, is_master=False, timeout=limit)
    os.environ["LOCAL_RANK"] = str(rank)  # by which transformers takes the rank's own device
    own = None
    if device.type == "cuda":
        torch.cuda.set_device(rank)
        own = torch.device("cuda", rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit, device_id=own)
    return Group(rank, size, device)


def check_devices(size: int, device: torch.device) -> None:
    """Raises BadConfiguration if there are not so many."""
    found = torch.cuda.device_count()
    if device.type == "cuda" and found < size:
        raise BadConfiguration(
            f"--tensor-parallel-size is {size}, and torch finds {found} CUDA device{'' if found == 1 else 's'} here: "
            f"set it to at most {found}."
        )
    if device.type == "cpu" and torch.cuda.is_available():
        raise BadConfiguration(
            f"--tensor-parallel-size is {size} and --device is cpu, on a machine that has CUDA devices: leave one of them out."
        )
