"""Pod manifests: from the text of a file to `Pod` values, or to every reason why not.

Pure: text in, values out. The steps, each usable alone: `decode` (YAML or JSON to objects),
`pod_from` (an object to a Pod), `with_defaults` and `validate` (KEP-2837 and the ordinary rules);
`load_manifests` is all of them.
"""

from agent.manifest.decode import MAX_BYTES, decode
from agent.manifest.defaults import aggregate, with_defaults
from agent.manifest.load import load_manifests, parse_pod
from agent.manifest.problem import ManifestError, Problem
from agent.manifest.structure import pod_from, pod_from_object
from agent.manifest.validation import validate

__all__ = [
    "MAX_BYTES",
    "ManifestError",
    "Problem",
    "aggregate",
    "decode",
    "load_manifests",
    "parse_pod",
    "pod_from",
    "pod_from_object",
    "validate",
    "with_defaults",
]
