"""Small machines and pods in few words. Sizes are MiB unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.domain.hints import ANY_NODE, Hint, Hints, Wishes
from agent.domain.idset import NodeMask
from agent.domain.pod import CPU, MEMORY, Container, ContainerKind, Pod, PodUid, ResourceName, Resources
from agent.domain.quantity import Quantity
from agent.domain.settings import Fidelity, Gates, MemoryPolicy, Settings
from agent.domain.state import Block, Blocks, MemoryState
from agent.domain.topology import NodeId, NumaNode, Topology
from agent.memorymanager.machinestate import initial_machine_state
from agent.memorymanager.policy import NO_REUSE
from agent.memorymanager.policy_static import StaticMemoryManager

MIB = 1 << 20
PAGE_2MI = 2048
HUGE_2MI = ResourceName("hugepages-2Mi")
NO_HINT = Hint(ANY_NODE, preferred=False)
NO_AFFINITY_PREFERRED = Hint(ANY_NODE, preferred=True)


def topology(memory: Sequence[int], pages_2mi: Sequence[int] = ()) -> Topology:
    """One node an entry of ``memory``; ``pages_2mi`` adds huge pages of 2 MiB on top."""
    pages = (*pages_2mi, *([0] * (len(memory) - len(pages_2mi))))
    return Topology(
        cpus=(),
        nodes=tuple(
            NumaNode(
                id=NodeId(i),
                memory=(size + 2 * count) * MIB,
                hugepages={PAGE_2MI: count} if pages_2mi else {},
            )
            for i, (size, count) in enumerate(zip(memory, pages, strict=True))
        ),
    )


def manager(
    memory: Sequence[int],
    pages_2mi: Sequence[int] = (),
    gates: Gates | None = None,
    fidelity: Fidelity = Fidelity.SAFE,
) -> StaticMemoryManager:
    """A manager that reserves nothing, so that ``memory`` is what can be allocated."""
    return StaticMemoryManager(
        initial=initial_machine_state(topology(memory, pages_2mi), {}, Fidelity.SAFE),
        gates=gates or Gates(),
        fidelity=fidelity,
    )


def settings(reserved: Mapping[int, Mapping[str, Quantity]], **node_reserved: Quantity) -> Settings:
    return Settings(
        memory_policy=MemoryPolicy.STATIC,
        reserved_memory={
            NodeId(node): {ResourceName(kind): size for kind, size in limits.items()}
            for node, limits in reserved.items()
        },
        node_reserved={ResourceName(kind): size for kind, size in node_reserved.items()},
    )


def resources(memory: int, huge: int = 0) -> Resources:
    """Guaranteed: requests equal limits."""
    sizes = {CPU: Quantity.whole(1), MEMORY: Quantity.bytes(memory * MIB)}
    if huge:
        sizes[HUGE_2MI] = Quantity.bytes(huge * MIB)
    return Resources(requests=sizes, limits=sizes)


def app(name: str, memory: int, huge: int = 0) -> Container:
    return Container(name=name, resources=resources(memory, huge))


def init(name: str, memory: int, huge: int = 0) -> Container:
    return Container(name=name, kind=ContainerKind.INIT, resources=resources(memory, huge))


def sidecar(name: str, memory: int, huge: int = 0) -> Container:
    return Container(name=name, kind=ContainerKind.SIDECAR, resources=resources(memory, huge))


def sharing(name: str, kind: ContainerKind = ContainerKind.APP) -> Container:
    """A container that states nothing."""
    return Container(name=name, kind=kind)


def pod(*containers: Container, uid: str = "u1", budget: Resources | None = None) -> Pod:
    made = Pod(name=uid, namespace="ns", uid=PodUid(uid), containers=containers)
    return (
        made
        if budget is None
        else Pod(name=uid, namespace="ns", uid=PodUid(uid), containers=containers, resources=budget)
    )


def block(nodes: str, memory: int, kind: ResourceName = MEMORY) -> Block:
    return Block(NodeMask.parse(nodes), kind, memory * MIB)


def entries(state: MemoryState, uid: str = "u1") -> dict[str, Blocks]:
    return dict(state.entries.get(PodUid(uid), {}))


def hint(nodes: str, *, preferred: bool = True) -> Hint:
    return Hint(NodeMask.parse(nodes), preferred)


def masks(wishes: Wishes, kind: ResourceName = MEMORY) -> tuple[list[str], list[str]]:
    """The preferred and the other masks as texts, narrow ones first."""
    hints = wishes[kind]
    assert isinstance(hints, Hints)
    return _texts(hints.preferred), _texts(hints.other)


def _texts(bits: Sequence[int]) -> list[str]:
    return [str(NodeMask(mask)) for mask in sorted(bits, key=lambda mask: (mask.bit_count(), mask))]


def reserved_and_assigned(state: MemoryState, kind: ResourceName = MEMORY) -> list[tuple[int, int, str]]:
    """Per node: MiB reserved, assignments, cells."""
    return [
        (held.tables[kind].reserved // MIB, held.assignments, str(held.cells))
        for _, held in sorted(state.nodes.items())
    ]


def admit(manager_: StaticMemoryManager, state: MemoryState, pod_: Pod, given: Hint = NO_HINT) -> MemoryState:
    """Allocate container by container, as admission does."""
    reuse = NO_REUSE
    for container in pod_.containers:
        outcome = manager_.allocate(state, pod_, container, given, reuse)
        state, reuse = outcome.state, outcome.reuse
    return state
