"""Names, numbers and types on the wire are the kubelet's; the generated code is that of the .proto files."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from agent.api.podresources.v1 import api_pb2 as v1
from agent.api.podresources.v1alpha1 import api_pb2 as v1alpha1
from tests.podresources.reference import METHODS, V1, V1ALPHA1, fields

ROOT = Path(__file__).parents[2]
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
}
VERSIONS = [
    pytest.param(v1.DESCRIPTOR, V1, id="v1"),
    pytest.param(v1alpha1.DESCRIPTOR, V1ALPHA1, id="v1alpha1"),
]


def mark(field: FieldDescriptor) -> str:
    return "*" if field.is_repeated else "?" if field.containing_oneof else ":"


def ours(message: Descriptor) -> set[tuple[str, str, str, int]]:
    return {
        (f.name, mark(f), f.message_type.name if f.message_type else SCALARS[f.type], f.number)
        for f in message.fields
    }


@pytest.mark.parametrize(("file", "tables"), VERSIONS)
def test_every_message_has_the_kubelets_fields(file: FileDescriptor, tables: Mapping[str, str]) -> None:
    assert set(file.message_types_by_name) == set(tables)
    for name, table in tables.items():
        assert ours(file.message_types_by_name[name]) == set(fields(table)), name


@pytest.mark.parametrize(("file", "tables"), VERSIONS)
def test_every_service_has_the_kubelets_methods(file: FileDescriptor, tables: Mapping[str, str]) -> None:
    assert tables
    service = file.services_by_name["PodResourcesLister"]
    found = {
        f"{service.full_name}/{m.name}": (m.input_type.name, m.output_type.name) for m in service.methods
    }
    assert found == {name: types for name, types in METHODS.items() if name.startswith(f"{file.package}.")}


def test_a_field_that_the_kubelet_has_given_up_stays_unused() -> None:
    message = v1.DESCRIPTOR.message_types_by_name["DynamicResource"]
    assert 1 not in message.fields_by_number


def test_generating_the_code_again_gives_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "gen-proto", tmp_path], check=True)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2.py*")}
    assert made == {path.relative_to(ROOT) for path in (ROOT / "agent").rglob("*_pb2.py*")}
    for path in made:
        assert (tmp_path / path).read_bytes() == (ROOT / path).read_bytes(), path
