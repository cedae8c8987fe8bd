"""`numalet topology`: the picture for people and the JSON for programs."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from agent.cli.topology import topology_json, topology_text
from agent.sysfs.discovery import discover
from agent.sysfs.reader import RecordedSysfs
from tests.sysfs.machines import NAMES, discovered
from tests.sysfs.synthetic import NODE, files_of, machine

PICTURES = {
    "intel-hybrid-laptop": """\
        16 CPUs, 12 cores, 1 socket, 1 uncore cache, 1 NUMA node, 38.8 GiB
        online    0-15

        socket 0  CPUs 0-15
          NUMA node 0  CPUs 0-15  38.8 GiB
            4 cores (cpu_core) of 2 threads: 0-1 2-3 4-5 6-7
            8 cores (cpu_atom) of 1 thread: 8 9 10 11 12 13 14 15
            1 uncore cache: 0-15
        """,
    "offline-cpu0-node0": """\
        17 CPUs, 17 cores, 2 sockets, 2 uncore caches, 1 NUMA node, 64.0 GiB
        online    4-20
        offline   0-3,21-191

        socket 0  CPUs 4,6,8,10,12,14,16,18,20
        socket 1  CPUs 5,7,9,11,13,15,17,19
          NUMA node 1  CPUs 5,7,9,11,13,15,17,19  64.0 GiB
            8 cores of 1 thread: 5 7 9 11 13 15 17 19
            1 uncore cache: 5,7,9,11,13,15,17,19
        no NUMA node  CPUs 4,6,8,10,12,14,16,18,20
            9 cores of 1 thread: 4 6 8 10 12 14 16 18 20
            1 uncore cache: 4,6,8,10,12,14,16,18,20

        warning: NUMA node 1: the number of distances is not that of the online nodes, so they don't count
        warning: CPU 4,6,8,10,12,14,16,18,20: on no online NUMA node, so never NUMA-aligned
        """,
    "nvidiagpunumanodes": """\
        32 CPUs, 8 cores, 2 sockets, 4 uncore caches, 8 NUMA nodes, 341.6 GiB
        online    0-15,88-103

        socket 0  CPUs 0-15
          NUMA node 0  CPUs 0-15  123.8 GiB
            4 cores of 4 threads: 0-3 4-7 8-11 12-15
            2 uncore caches: 0-7 8-15
        socket 8  CPUs 88-103
          NUMA node 8  CPUs 88-103  127.7 GiB
            4 cores of 4 threads: 88-91 92-95 96-99 100-103
            2 uncore caches: 88-95 96-103
        NUMA node 250  no CPUs  15.0 GiB
        NUMA node 251  no CPUs  15.0 GiB
        NUMA node 252  no CPUs  15.0 GiB
        NUMA node 253  no CPUs  15.0 GiB
        NUMA node 254  no CPUs  15.0 GiB
        NUMA node 255  no CPUs  15.0 GiB

        distance   0   8 250 251 252 253 254 255
               0  10  40  80  80  80  80  80  80
               8  40  10  80  80  80  80  80  80
             250  80  80  10  80  80  80  80  80
             251  80  80  80  10  80  80  80  80
             252  80  80  80  80  10  80  80  80
             253  80  80  80  80  80  10  80  80
             254  80  80  80  80  80  80  10  80
             255  80  80  80  80  80  80  80  10
        """,
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_of_a_machine(name: str) -> None:
    assert topology_text(discovered(name)) == dedent(PICTURES[name])


def test_a_node_that_spans_sockets_holds_them() -> None:
    files = files_of(machine(sockets=2, cores=1)) | {
        f"{NODE}/online": "0\n",
        f"{NODE}/node0/cpulist": "0-3\n",
    }
    files[f"{NODE}/node0/distance"] = "10\n"
    assert topology_text(discover(RecordedSysfs("spanning", files))) == dedent("""\
        4 CPUs, 2 cores, 2 sockets, 2 uncore caches, 1 NUMA node, 4.0 GiB
        online    0-3

        NUMA node 0  CPUs 0-3  4.0 GiB  8 hugepages-2Mi
          socket 0  CPUs 0-1
            1 core of 2 threads: 0-1
            1 uncore cache: 0-1
          socket 1  CPUs 2-3
            1 core of 2 threads: 2-3
            1 uncore cache: 2-3
        """)


@pytest.mark.parametrize("name", NAMES)
def test_every_socket_node_and_core_is_in_the_picture_once(name: str) -> None:
    topology = discovered(name)
    picture = topology_text(topology)
    words = picture.split()
    assert all(picture.count(f"NUMA node {node.id}  ") == 1 for node in topology.nodes)
    assert all(f"socket {socket}  " in picture for socket in topology.sockets)
    assert all(str(threads) in words for threads in topology.cores.values())


def test_the_json_of_a_machine() -> None:
    topology = discover(RecordedSysfs("two", files_of(machine(sockets=2, cores=1))))
    assert topology_json(topology) == {
        "onlineCPUs": "0-3",
        "cores": ["0-1", "2-3"],
        "sockets": ["0-1", "2-3"],
        "uncoreCaches": ["0-1", "2-3"],
        "numaNodes": [
            {
                "id": 0,
                "cpus": "0-1",
                "memory": 4 << 30,
                "hugepages": {"hugepages-2Mi": 8},
                "distances": [10, 20],
            },
            {
                "id": 1,
                "cpus": "2-3",
                "memory": 4 << 30,
                "hugepages": {"hugepages-2Mi": 8},
                "distances": [20, 10],
            },
        ],
        "warnings": [],
    }


def test_the_json_tells_real_caches_only() -> None:
    assert topology_json(discovered("rv64-milkvpioneer"))["uncoreCaches"] == []
    assert topology_json(discovered("nvidia-dgx-gb10"))["uncoreCaches"] == ["0-9", "10-19"]


@pytest.mark.parametrize("name", NAMES)
def test_the_json_is_json_and_names_what_discovery_found(name: str) -> None:
    topology = discovered(name)
    told = json.loads(json.dumps(topology_json(topology)))
    assert told["onlineCPUs"] == str(topology.online)
    assert told["cores"] == [str(cpus) for cpus in topology.cores.values()]
    assert [node["id"] for node in told["numaNodes"]] == [node.id for node in topology.nodes]
    assert told["warnings"] == list(topology.warnings)
