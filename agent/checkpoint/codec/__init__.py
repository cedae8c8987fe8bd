"""The kubelet's checkpoint files, byte for byte; pure functions from and to bytes.

Versions: CPU V1 to V4 and memory V1 to V3, as Kubernetes 1.37 reads and writes them (KEP-5526).
"""

from agent.checkpoint.codec.cpu import decode_cpu, encode_cpu, encode_cpu_v1
from agent.checkpoint.codec.file import (
    NO_EXTRA,
    CorruptCheckpointError,
    Decoded,
    Extra,
    require_policy,
)
from agent.checkpoint.codec.memo import Memo
from agent.checkpoint.codec.memory import decode_memory, encode_memory

__all__ = [
    "NO_EXTRA",
    "CorruptCheckpointError",
    "Decoded",
    "Extra",
    "Memo",
    "decode_cpu",
    "decode_memory",
    "encode_cpu",
    "encode_cpu_v1",
    "encode_memory",
    "require_policy",
]
