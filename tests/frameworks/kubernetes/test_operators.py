"""The files for Valkey's chart and for operators have the form that the chart and the operators' CRDs require.

KUBERNETES_SCHEMAS names a folder with checkouts of the repositories below, as OWNER/NAME. Nothing is downloaded: a test
without its repository is skipped. If helm is installed, it renders the chart.
"""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

import jsonschema
import kubernetes_validate
import yaml

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "packaging/kubernetes"
CRDS = {
    "ot-operator.yaml": "OT-CONTAINER-KIT/redis-operator/config/crd/bases/"
    "redis.redis.opstreelabs.in_redisreplications.yaml",
    "spotahome-operator.yaml": "spotahome/redis-operator/manifests/databases.spotahome.com_redisfailovers.yaml",
    "valkey-operator.yaml": "valkey-io/valkey-operator/config/crd/bases/valkey.io_valkeyclusters.yaml",
}


def found(case, path):
    """A file of a repository that was checked out, or the end of the test."""
    folder = os.environ.get("KUBERNETES_SCHEMAS")
    if not folder or not (file := pathlib.Path(folder) / path).exists():
        case.skipTest(f"KUBERNETES_SCHEMAS has no {path}")
    return file


def strict(schema):
    """A CRD's schema as JSON Schema. Kubernetes drops unknown fields; here they are errors."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    schema = {key: strict(value) for key, value in schema.items()}
    open_to_all = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_to_all:
        schema["additionalProperties"] = False
    return schema


def paths(values, defaults, path=""):
    """The keys that a chart does not have; what is empty in its defaults may have any key."""
    for key, value in values.items():
        if key not in defaults:
            yield f"{path}{key}"
        elif isinstance(value, dict) and defaults[key]:
            yield from paths(value, defaults[key], f"{path}{key}.")


def merged(defaults, values):
    """A chart's values as Helm sees them: maps are merged, anything else replaces the default."""
    if not isinstance(defaults, dict) or not isinstance(values, dict):
        return values
    return defaults | {key: merged(defaults.get(key), value) for key, value in values.items()}


class OperatorsTest(unittest.TestCase):
    def test_resources_fit_the_schemas_of_their_operators(self):
        for name, crd in CRDS.items():
            with self.subTest(name):
                definition = next(yaml.safe_load_all(found(self, crd).read_text()))["spec"]
                for document in yaml.safe_load_all((FOLDER / name).read_text()):
                    if document["kind"] == "ConfigMap":
                        kubernetes_validate.validate(document, "1.37", strict=True)
                        continue
                    group, version = document["apiVersion"].split("/")
                    self.assertEqual((group, document["kind"]), (definition["group"], definition["names"]["kind"]))
                    versions = {it["name"]: it for it in definition["versions"] if it["served"]}
                    schema = strict(versions[version]["schema"]["openAPIV3Schema"])
                    schema["properties"]["metadata"] = {"type": "object"}
                    jsonschema.validate(document, schema)
                    document["spec"]["unknown"] = 1
                    with self.assertRaises(jsonschema.ValidationError):
                        jsonschema.validate(document, schema)

    def test_the_chart_has_the_values_that_are_set(self):
        chart = found(self, "valkey-io/valkey-helm/valkey/values.yaml")
        values = yaml.safe_load((FOLDER / "values.yaml").read_text())
        self.assertEqual(list(paths(values, yaml.safe_load(chart.read_text()))), [])

    def test_the_values_fit_the_schema_of_the_chart(self):
        chart = found(self, "valkey-io/valkey-helm/valkey/values.schema.json").parent
        schema = json.loads((chart / "values.schema.json").read_text())
        defaults = yaml.safe_load((chart / "values.yaml").read_text())
        values = yaml.safe_load((FOLDER / "values.yaml").read_text())
        jsonschema.validate(merged(defaults, values), schema)
        values["replica"]["replicas"] = "0"
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.validate(merged(defaults, values), schema)

    def test_the_chart_makes_valid_resources_of_the_values(self):
        chart = found(self, "valkey-io/valkey-helm/valkey/Chart.yaml").parent
        if not shutil.which("helm"):
            self.skipTest("helm is not here")
        command = ["helm", "template", "locks", chart, "-f", FOLDER / "values.yaml"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # The chart has a tab at the end of a line, which YAML allows and PyYAML does not.
        text = "\n".join(line.rstrip() for line in text.splitlines())
        documents = {it["kind"]: it for it in yaml.safe_load_all(text) if it}
        for document in documents.values():
            kubernetes_validate.validate(document, "1.37", strict=True)
        pod = documents["StatefulSet"]["spec"]["template"]["spec"]
        self.assertEqual(documents["StatefulSet"]["spec"]["replicas"], 1)
        for container in pod["initContainers"] + pod["containers"]:
            security = container["securityContext"]
            self.assertFalse(security["allowPrivilegeEscalation"])
            self.assertEqual(security["capabilities"]["drop"], ["ALL"])
        self.assertIn("loadmodule /modules/libredis_lock.so", documents["ConfigMap"]["data"].get("valkey.conf", text))


if __name__ == "__main__":
    unittest.main()
