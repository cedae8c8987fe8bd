"""The PodResources API as a client knows it: message tables written down by hand, not our .proto.

Message classes are made from the tables in a pool of their own, so that what our server sends is read
by names and numbers that our generated code has no part in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

Json = dict[str, Any]

V1: Final[Mapping[str, str]] = {
    "AllocatableResourcesRequest": "",
    "AllocatableResourcesResponse": "devices*ContainerDevices=1 cpu_ids*int64=2 memory*ContainerMemory=3",
    "ListPodResourcesRequest": "",
    "ListPodResourcesResponse": "pod_resources*PodResources=1",
    "GetPodResourcesRequest": "pod_name:string=1 pod_namespace:string=2",
    "GetPodResourcesResponse": "pod_resources:PodResources=1",
    "PodResources": "name:string=1 namespace:string=2 containers*ContainerResources=3 cpu_ids*int64=4 memory*ContainerMemory=5",
    "ContainerResources": "name:string=1 devices*ContainerDevices=2 cpu_ids*int64=3 memory*ContainerMemory=4 dynamic_resources*DynamicResource=5",
    "ContainerMemory": "memory_type:string=1 size:uint64=2 topology:TopologyInfo=3",
    "ContainerDevices": "resource_name:string=1 device_ids*string=2 topology:TopologyInfo=3",
    "TopologyInfo": "nodes*NUMANode=1",
    "NUMANode": "ID:int64=1",
    "DynamicResource": "claim_name:string=2 claim_namespace:string=3 claim_resources*ClaimResource=4",
    "ClaimResource": "cdi_devices*CDIDevice=1 driver_name:string=2 pool_name:string=3 device_name:string=4 share_id?string=5",
    "CDIDevice": "name:string=1",
}
V1ALPHA1: Final[Mapping[str, str]] = {
    "ListPodResourcesRequest": "",
    "ListPodResourcesResponse": "pod_resources*PodResources=1",
    "PodResources": "name:string=1 namespace:string=2 containers*ContainerResources=3",
    "ContainerResources": "name:string=1 devices*ContainerDevices=2",
    "ContainerDevices": "resource_name:string=1 device_ids*string=2",
}
HEALTH: Final[Mapping[str, str]] = {
    "HealthCheckRequest": "service:string=1",
    "HealthCheckResponse": "status:int64=1",  # an enum: 1 is SERVING
}
REFLECTION: Final[Mapping[str, str]] = {
    "ServerReflectionRequest": "host:string=1 file_by_filename?string=3 file_containing_symbol?string=4 list_services?string=7",
    "ServerReflectionResponse": "valid_host:string=1 original_request:ServerReflectionRequest=2 file_descriptor_response:FileDescriptorResponse=4 list_services_response:ListServiceResponse=6 error_response:ErrorResponse=7",
    "FileDescriptorResponse": "file_descriptor_proto*bytes=1",
    "ListServiceResponse": "service*ServiceResponse=1",
    "ServiceResponse": "name:string=1",
    "ErrorResponse": "error_code:int64=1 error_message:string=2",
}
METHODS: Final[Mapping[str, tuple[str, str]]] = {
    "v1.PodResourcesLister/List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
    "v1.PodResourcesLister/Get": ("GetPodResourcesRequest", "GetPodResourcesResponse"),
    "v1.PodResourcesLister/GetAllocatableResources": (
        "AllocatableResourcesRequest",
        "AllocatableResourcesResponse",
    ),
    "v1alpha1.PodResourcesLister/List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
    "grpc.health.v1.Health/Check": ("HealthCheckRequest", "HealthCheckResponse"),
    "grpc.health.v1.Health/Watch": ("HealthCheckRequest", "HealthCheckResponse"),
    **{
        f"grpc.reflection.{version}.ServerReflection/ServerReflectionInfo": (
            "ServerReflectionRequest",
            "ServerReflectionResponse",
        )
        for version in ("v1", "v1alpha")
    },
}
_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}


def fields(table: str) -> Iterable[tuple[str, str, str, int]]:
    """Name, mark (``:`` one, ``*`` many, ``?`` optional), type and number of each field."""
    for word in table.split():
        left, _, number = word.partition("=")
        mark = next(mark for mark in ":*?" if mark in left)
        name, _, kind = left.partition(mark)
        yield name, mark, kind, int(number)


def _file(package: str, tables: Mapping[str, str]) -> FileDescriptorProto:
    file = FileDescriptorProto(name=f"reference/{package}.proto", package=package, syntax="proto3")
    for message_name, table in tables.items():
        message = file.message_type.add(name=message_name)
        for name, mark, kind, number in fields(table):
            field = message.field.add(name=name, number=number)
            field.label = (
                FieldDescriptorProto.LABEL_REPEATED if mark == "*" else FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{kind}"
            if mark == "?":
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}")
    return file


_POOL = descriptor_pool.DescriptorPool()
for _package, _tables in (
    ("v1", V1),
    ("v1alpha1", V1ALPHA1),
    ("grpc.health.v1", HEALTH),
    ("grpc.reflection.v1", REFLECTION),
    ("grpc.reflection.v1alpha", REFLECTION),
):
    _POOL.Add(_file(_package, _tables))


def message_class(name: str) -> type[Message]:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


class RefusedError(Exception):
    """An answer with another status than OK."""

    def __init__(self, error: grpc.RpcError) -> None:
        call: Any = error  # an RpcError that a call raises is the call, too
        self.code: grpc.StatusCode = call.code()
        self.details: str = call.details()
        super().__init__(self.details)


class Client:
    """A client of the server at ``path``; answers are JSON, 64-bit numbers as int."""

    def __init__(self, path: Path) -> None:
        own = [("grpc.use_local_subchannel_pool", 1)]  # channels to one address share a connection otherwise
        self.channel = grpc.insecure_channel(f"unix:{quote(str(path))}", own)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, method: str, **request: str) -> Json:
        """Call ``package.Service/Method``; raises RefusedError."""
        try:
            return plain(self._stub(method)(message_class(self._names(method)[0])(**request), timeout=20))
        except grpc.RpcError as error:
            raise RefusedError(error) from error

    def list(self) -> dict[str, Json]:
        """The pods by name, in the order they came."""
        return {pod["name"]: pod for pod in self.call("v1.PodResourcesLister/List").get("pod_resources", ())}

    def get(self, name: str, namespace: str = "default") -> Json:
        answer = self.call("v1.PodResourcesLister/Get", pod_name=name, pod_namespace=namespace)
        pod: Json = answer["pod_resources"]
        return pod

    def allocatable(self) -> Json:
        return self.call("v1.PodResourcesLister/GetAllocatableResources")

    def health(self, service: str) -> int:
        """The status that a check of ``service`` gives."""
        status: int = self.call("grpc.health.v1.Health/Check", service=service)["status"]
        return status

    def watch(self) -> Any:
        """A watch over the health of everything; ends when it is cancelled."""
        request, answer = map(message_class, self._names("grpc.health.v1.Health/Watch"))
        call = self.channel.unary_stream("/grpc.health.v1.Health/Watch", _serialized, answer.FromString)
        return call(request())

    def reflect(self, version: str, **request: str) -> Any:
        """The answer to one question about what is served."""
        method = f"grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        asked, answer = map(message_class, self._names(method))
        call = self.channel.stream_stream(f"/{method}", _serialized, answer.FromString)
        (found,) = call(iter((asked(**request),)), timeout=20)
        return found

    def _stub(self, method: str) -> Callable[..., Message]:
        answer = message_class(self._names(method)[1])
        stub: Callable[..., Message] = self.channel.unary_unary(f"/{method}", _serialized, answer.FromString)
        return stub

    @staticmethod
    def _names(method: str) -> tuple[str, str]:
        package = method.partition("/")[0].rpartition(".")[0]
        request, answer = METHODS[method]
        return f"{package}.{request}", f"{package}.{answer}"


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()


def plain(message: Message) -> Json:
    """The message by its field names; nothing unknown was in it. Defaults are left out."""
    assert message.SerializeToString(deterministic=True) == _known(message).SerializeToString(
        deterministic=True
    )
    answer: Json = _numbers(json_format.MessageToDict(message, preserving_proto_field_name=True))
    return answer


def _known(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy


def _numbers(value: Any) -> Any:
    """JSON has 64-bit numbers as text; here they are numbers again. No name in these tests is all digits."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return int(value) if isinstance(value, str) and value.isdigit() else value
