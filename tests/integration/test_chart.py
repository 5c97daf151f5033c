"""docs/start: the chart installs with one command: a misspelt value is refused, and an API server takes all of it."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from llmendpoint_batch.__main__ import DATABASE_URL, read_settings
from llmendpoint_batch.__main__ import make_parser as batch_parser
from llmendpoint_gateway.__main__ import make_parser
from llmendpoint_gateway.core.identity.authentication import Authentication
from llmendpoint_gateway.serve.identity.token_reviews import AUDIENCE
from llmendpoint_operator.__main__ import parse
from llmendpoint_operator.core.endpoint.allowed import Allowed
from llmendpoint_server.settings import parse as parse_server
from tests.cluster import Cluster
from tests.cluster.errors import CommandFailed
from tests.demo.product import CHART, ROOT

pytestmark = pytest.mark.integration


def render(cluster: Cluster, *settings: str) -> list[dict[str, Any]]:
    """Objects of the chart with `--set` settings."""
    flags = [word for setting in settings for word in ("--set-json", setting)]
    text = cluster.helm("template", "llmendpoint", str(CHART), "--namespace", "llm-test", *flags)
    return [item for item in yaml.safe_load_all(text) if item]


def of_kind(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] in kinds]


def test_the_charts_crds_are_those_of_the_models() -> None:
    for path in (ROOT / "crds").glob("*.yaml"):
        assert (CHART / "crds" / path.name).read_text() == path.read_text(), (
            f"run `make crds`: {path.name} differs"
        )
    assert len(list((CHART / "crds").glob("*.yaml"))) == len(list((ROOT / "crds").glob("*.yaml"))) == 3


def test_lint_has_nothing_to_complain_about(control_plane: Cluster) -> None:
    assert "0 chart(s) failed" in control_plane.helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("gateway.replicas=-1", "at '/gateway/replicas': minimum"),
        ("gateway.leaveSeconds=null", "gateway.leaveSeconds is missing; its default is 5"),
        ("gateway.leaveSeconds=0", "at '/gateway/leaveSeconds': minimum"),
        ("gateway.leaveSeconds=3601", "at '/gateway/leaveSeconds': maximum"),
        ("gateway.leaveSeconds=1.5", "at '/gateway/leaveSeconds': got number, want integer"),
        ('gateway.leaveSeconds="5"', "at '/gateway/leaveSeconds': got string, want integer"),
        ('gateway.authentication="required"', "at '/gateway/authentication': value must be one of"),
        ("gateway.authentication=true", "at '/gateway/authentication': value must be one of"),
        ("batch.concurrency=0", "at '/batch/concurrency': minimum"),
        ('batch.storage.existingClaim="A_b"', "at '/batch/storage/existingClaim'"),
        ("operator.replica=2", "additional properties 'replica' not allowed"),
        ('gateway.service.type="Nodeport"', "at '/gateway/service/type': value must be one of"),
        ('operator.image.repository="Bad Name"', "at '/operator/image/repository'"),
        ('watchNamespace="Team_A"', "at '/watchNamespace'"),
        ('networkPolicies.from=[{"ports": []}]', "at '/networkPolicies/from/0'"),
        ('runtime.volumeMounts=[{"name": "cache"}]', "missing property 'mountPath'"),
        ('runtime.env=[{"name": "A", "value": 1}]', "at '/runtime/env/0/value': got number, want string"),
        ('policies.mode="strict"', "at '/policies/mode': value must be one of"),
        ('policies.allowed.images=["a*b"]', "at '/policies/allowed/images/0'"),
        ('policies.allowed.runtimes=["a*b"]', "at '/policies/allowed/runtimes/0'"),
        ('policies.allowed.runtimes=[""]', "at '/policies/allowed/runtimes/0': minLength"),
        (f'policies.allowed.runtimes=["{"a" * 257}"]', "at '/policies/allowed/runtimes/0': maxLength"),
        (f"policies.allowed.runtimes={json.dumps(['a'] * 65)}", "at '/policies/allowed/runtimes': maxItems"),
        ('policies.allowed.runtimes="*"', "at '/policies/allowed/runtimes': got string, want array"),
        ("policies.allowed.runtimes=[7]", "at '/policies/allowed/runtimes/0': got number, want string"),
        ('traces.endpoint="collector:4318"', "at '/traces/endpoint'"),
        ('traces.endpoint="http://me:secret@collector"', "at '/traces/endpoint'"),
        ("traces.sampling=2", "at '/traces/sampling': maximum"),
        ("prometheus.rules.errorPercent=101", "at '/prometheus/rules/errorPercent': maximum"),
        ("prometheus.rules.firstTokenSeconds=-1", "at '/prometheus/rules/firstTokenSeconds': minimum"),
        ('prometheus.rules.runbooks="page.html#one"', "at '/prometheus/rules/runbooks'"),
        ("prometheus.podMonitor.enabled=true", "additional properties 'podMonitor' not allowed"),
        ('hub.allowed=["hub.example.com"]', "at '/hub/allowed/0'"),
        ('hub.allowed=["https://user@hub.example.com"]', "at '/hub/allowed/0'"),
        ('judge.allowedHosts=["https://judge.example.com"]', "at '/judge/allowedHosts/0'"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(control_plane: Cluster, setting: str, complaint: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        render(control_plane, setting)
    assert complaint in refused.value.output


def test_the_api_server_takes_every_object_under_restricted_pod_security(installed: Cluster) -> None:
    """A namespace that enforces `restricted` would warn about, and later refuse, pods that do not keep to it."""
    deployments = installed.get("deployments", "-n", "llm-test")["items"]
    assert {d["metadata"]["name"] for d in deployments} == {"llmendpoint-operator", "llmendpoint-gateway"}
    runtime = installed.get("llmruntime", "llmendpoint")
    assert runtime["spec"]["image"] == "llmendpoint-server:0.1.0"
    for deployment in deployments:
        pod = {**deployment["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {"name": deployment["metadata"]["name"], "namespace": "llm-test"}
        installed.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


def test_the_batch_service_is_off_until_it_is_asked_for(control_plane: Cluster) -> None:
    assert "llmendpoint-batch" not in json.dumps(render(control_plane))


def test_the_batch_service_has_one_pod_a_volume_and_no_rights(control_plane: Cluster) -> None:
    objects = render(
        control_plane, "batch.enabled=true", "batch.storage.sizeGi=4", "gateway.service.port=8080"
    )
    mine = [item for item in objects if item["metadata"]["name"] == "llmendpoint-batch"]
    assert {item["kind"] for item in mine} == {
        "ServiceAccount", "PersistentVolumeClaim", "Service", "Deployment", "NetworkPolicy",
    }  # fmt: skip
    [deployment] = of_kind(mine, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    settings = read_settings(batch_parser().parse_args(pod["containers"][0]["args"]))
    assert settings.gateway == "http://llmendpoint-gateway.llm-test.svc:8080"
    assert settings.bounds.storage_bytes == 2 << 30
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert not pod["automountServiceAccountToken"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        assert "llmendpoint-batch" not in json.dumps(of_kind(objects, kind))
    [gateway] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"]
    envoy = make_parser().parse_args(gateway["spec"]["template"]["spec"]["containers"][0]["args"])
    assert envoy.batch_service == "llmendpoint-batch.llm-test.svc:80"
    [policy] = of_kind(mine, "NetworkPolicy")
    [api, state] = policy["spec"]["ingress"]
    assert api["ports"][0]["port"] == 8080
    assert len(api["from"]) == 1, "the gateway alone"
    assert state["ports"][0]["port"] == 8081
    for item in mine:
        control_plane.kubectl(
            "apply", "--dry-run=server", "-n", "default", "-f", "-",
            stdin=yaml.safe_dump({**item, "metadata": {**item["metadata"], "namespace": "default"}}),
        )  # fmt: skip


def test_the_batch_service_takes_a_claim_that_is_there(control_plane: Cluster) -> None:
    objects = render(control_plane, "batch.enabled=true", 'batch.storage.existingClaim="mine"')
    assert not of_kind(objects, "PersistentVolumeClaim")
    [deployment] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-batch"]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["persistentVolumeClaim"] == {"claimName": "mine"}


def test_with_a_database_the_batch_service_has_no_volume_and_its_url_comes_from_the_secret(
    control_plane: Cluster,
) -> None:
    objects = render(control_plane, "batch.enabled=true", 'batch.database.urlSecret.name="pg"')
    assert not of_kind(objects, "PersistentVolumeClaim")
    [deployment] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-batch"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["env"] == [
        {"name": DATABASE_URL, "valueFrom": {"secretKeyRef": {"name": "pg", "key": "url"}}}
    ]
    settings = read_settings(batch_parser().parse_args(container["args"]), {DATABASE_URL: "postgresql://h/d"})
    assert (settings.data, settings.database) == (None, "postgresql://h/d")
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "state"}
    control_plane.kubectl(
        "apply", "--dry-run=server", "-n", "default", "-f", "-",
        stdin=yaml.safe_dump({**deployment, "metadata": {**deployment["metadata"], "namespace": "default"}}),
    )  # fmt: skip


def gateway_containers(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The picker and Envoy."""
    [gateway] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"]
    pod = gateway["spec"]["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


def gateway_flags(objects: list[dict[str, Any]], flag: str) -> list[str]:
    """What both get by it."""
    arguments = [a for container in gateway_containers(objects) for a in container["args"]]
    return [value for name, _, value in (a.partition("=") for a in arguments) if name == flag]


def rules_of(objects: list[dict[str, Any]], component: str) -> list[dict[str, Any]]:
    roles = of_kind(objects, "ClusterRole", "Role")
    mine = [role for role in roles if f"llmendpoint-{component}" in role["metadata"]["name"]]
    return [rule for role in mine for rule in role["rules"]]


@pytest.mark.parametrize("mode", ['"Off"', "false", "null"])
def test_without_authentication_a_gateway_gets_neither_the_flag_nor_a_right_on_keys(
    control_plane: Cluster, mode: str
) -> None:
    """In YAML a bare Off is false; with --reuse-values an older release has no such value. A gateway of the version before
    knows no such flag."""
    objects = render(control_plane, f"gateway.authentication={mode}")
    assert gateway_flags(objects, "--authentication") == []
    assert "llmkeys" not in json.dumps(rules_of(objects, "gateway"))


@pytest.mark.parametrize("mode", ["Optional", "Required"])
@pytest.mark.parametrize("namespace", ["", "team-a"])
def test_with_authentication_a_gateway_may_read_keys_and_no_secret(
    control_plane: Cluster, mode: str, namespace: str
) -> None:
    settings = (f'gateway.authentication="{mode}"', f'watchNamespace="{namespace}"')
    objects = render(control_plane, *settings)
    assert gateway_flags(objects, "--authentication") == [mode.lower()] * 2
    for container in gateway_containers(objects):
        assert make_parser().parse_args(container["args"]).authentication is Authentication[mode.upper()]
    mine = rules_of(objects, "gateway")
    assert [rule["verbs"] for rule in mine if "llmkeys" in rule["resources"]] == [["list", "watch"]]
    assert "secrets" not in json.dumps(mine)
    assert "llmkeys" not in json.dumps(rules_of(objects, "operator")), "the operator has no use for keys"


@pytest.mark.parametrize("mode", ["Optional", "Required"])
def test_the_batch_service_is_refused_with_authentication(control_plane: Cluster, mode: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        render(control_plane, "batch.enabled=true", f'gateway.authentication="{mode}"')
    said = f'batch.enabled needs gateway.authentication: "Off", and it is {mode}: the batch service does not keep'
    assert said in refused.value.output


def test_the_notes_make_a_key_where_requests_need_one(control_plane: Cluster) -> None:
    def notes(mode: str) -> str:
        flags = ["-n", "llm-test", "--set", f"gateway.authentication={mode}", "--dry-run=client"]
        return control_plane.helm("install", "other", str(CHART), *flags).partition("NOTES:")[2]

    assert "kubectl llm keys" not in notes("Off")
    required = notes("Required")
    assert "KEY=$(kubectl llm keys create first -n default --grant tiny)" in required
    assert '-H "Authorization: Bearer $KEY"' in required


def test_with_a_watched_namespace_no_cluster_wide_role_reaches_endpoints(control_plane: Cluster) -> None:
    objects = render(control_plane, 'watchNamespace="team-a"')
    cluster_rules = [rule for role in of_kind(objects, "ClusterRole") for rule in role["rules"]]
    assert {r for rule in cluster_rules for r in rule["resources"]} == {"llmruntimes", "tokenreviews"}
    roles = {(r["metadata"]["namespace"], r["metadata"]["name"]) for r in of_kind(objects, "Role")}
    assert ("team-a", "llmendpoint-operator.llm-test") in roles
    assert ("team-a", "llmendpoint-gateway.llm-test") in roles
    [own] = [r for r in of_kind(objects, "Role") if r["metadata"]["name"] == "llmendpoint-operator-lease"]
    gateway_pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    assert gateway_pods in own["rules"], "gateways acknowledge from the release's namespace"
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        arguments = [a for c in [*pod.get("initContainers", []), *pod["containers"]] for a in c["args"]]
        assert "--watch-namespace=team-a" in arguments


def test_roles_hold_no_wildcard_no_secrets_and_no_write_on_the_users_objects(control_plane: Cluster) -> None:
    rules = [rule for role in of_kind(render(control_plane), "ClusterRole", "Role") for rule in role["rules"]]
    for rule in rules:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]
        if "llmendpoints" in rule["resources"] or "llmruntimes" in rule["resources"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}


@pytest.mark.parametrize(
    ("mode", "actions"), [('"off"', None), ("false", None), ('"warn"', ["Warn", "Audit"]), ('"enforce"', ["Deny"])]
)  # fmt: skip
def test_the_operators_bounds_are_always_there_and_policies_for_users_by_their_mode(
    control_plane: Cluster, mode: str, actions: list[str] | None
) -> None:
    """In YAML a bare off is false."""
    objects = render(control_plane, f"policies.mode={mode}")
    found = {
        b["spec"]["policyName"]: b["spec"]["validationActions"]
        for b in of_kind(objects, "ValidatingAdmissionPolicyBinding")
    }
    bounds = {f"llmendpoint-operator-{name}.llm-test": ["Deny"] for name in ("children", "templates", "pods")}
    users = ("llmendpoints.llm-test", "llmendpoint-promotions.llm-test")
    assert found == bounds | (dict.fromkeys(users, actions) if actions else {})
    assert {p["metadata"]["name"] for p in of_kind(objects, "ValidatingAdmissionPolicy")} == set(found)


def test_what_users_may_name_reaches_the_operator(control_plane: Cluster) -> None:
    objects = render(
        control_plane, 'hub.endpoint="https://hub.example.com"', 'hub.allowed=["https://s3.example.com"]',
        'judge.allowedHosts=["judge.example.com"]', 'judge.allowedNamespaces=["platform"]',
    )  # fmt: skip
    [operator] = [
        d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-operator"
    ]
    allowed = parse(operator["spec"]["template"]["spec"]["containers"][0]["args"]).allowed
    hubs = ("https://hub.example.com", "https://s3.example.com")
    assert allowed == Allowed(hubs, ("judge.example.com",), ("platform",))


def test_a_disruption_budget_exists_only_where_one_pod_may_go(control_plane: Cluster) -> None:
    budgets = of_kind(
        render(control_plane, "operator.replicas=2", "gateway.replicas=1"), "PodDisruptionBudget"
    )
    assert [b["metadata"]["name"] for b in budgets] == ["llmendpoint-operator"]


def test_a_host_port_makes_the_update_stop_the_old_gateway_first(control_plane: Cluster) -> None:
    """A surge pod would wait for ever for the port that the old one holds."""
    objects = render(control_plane, "gateway.hostPort=8080")
    [gateway] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"]
    assert gateway["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    assert gateway["spec"]["template"]["spec"]["containers"][0]["ports"][0]["hostPort"] == 8080


def test_a_gateway_drains_by_a_command_that_it_knows_before_it_is_stopped(control_plane: Cluster) -> None:
    objects = render(control_plane, "gateway.drainSeconds=7", "gateway.leaveSeconds=6")
    [gateway] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"]
    pod = gateway["spec"]["template"]["spec"]
    [envoy] = pod["containers"]
    program, *words = envoy["lifecycle"]["preStop"]["exec"]["command"]
    drain, served = make_parser().parse_args(words), make_parser().parse_args(envoy["args"])
    assert (program, drain.command, drain.seconds, drain.least_seconds) == (
        "llmendpoint-gateway",
        "drain",
        7,
        6,
    )
    assert drain.socket == served.socket
    assert pod["terminationGracePeriodSeconds"] > drain.seconds


def peers_of(policy: dict[str, Any]) -> dict[str, list[str]]:
    """By port: who may come, `everybody` or the labels that they have."""
    found = {}
    for rule in policy["spec"]["ingress"]:
        peers = rule.get("from")
        texts = [yaml.safe_dump(peer) for peer in peers] if peers is not None else ["everybody"]
        found.update({port["port"]: texts for port in rule["ports"]})
    return found


def test_the_ports_that_tell_of_all_endpoints_are_for_those_who_need_them(control_plane: Cluster) -> None:
    """Any pod could read names and figures of all tenants there."""
    settings = ("keda.enabled=true", 'keda.namespace="keda-system"', 'prometheus.namespace="metrics"')
    more = 'networkPolicies.from=[{"ipBlock": {"cidr": "10.9.0.0/28"}}]'
    policies = {
        p["metadata"]["name"]: p for p in of_kind(render(control_plane, *settings, more), "NetworkPolicy")
    }
    gateway, operator = (peers_of(policies[f"llmendpoint-{name}"]) for name in ("gateway", "operator"))
    assert gateway[8080] == ["everybody"]
    own, prometheus, added = gateway[8081]
    assert "llmendpoint-operator" in own
    assert "namespaceSelector" not in own
    assert "metrics" in prometheus
    assert "app.kubernetes.io/name: prometheus" in prometheus
    assert "10.9.0.0/28" in added
    assert operator[8082] == [prometheus, added]
    [keda] = operator[8083]
    assert "keda-system" in keda
    # Numbers: network plugins that know the ports of `containers` alone do not find the name of a native sidecar's.
    assert set(gateway) == {8080, 8081}
    assert set(operator) == {8082, 8083}
    for name, policy in policies.items():
        [deployment] = [
            d
            for d in of_kind(render(control_plane, *settings), "Deployment")
            if d["metadata"]["name"] == name
        ]
        pod = deployment["spec"]["template"]["spec"]
        containers = [*pod["containers"], *pod.get("initContainers", [])]
        assert set(peers_of(policy)) == {p["containerPort"] for c in containers for p in c.get("ports", [])}
        selected = policy["spec"]["podSelector"]["matchLabels"].items()
        assert selected <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert of_kind(render(control_plane, "networkPolicies.enabled=false"), "NetworkPolicy") == []


def test_the_network_policies_are_there_once_it_is_installed(installed: Cluster) -> None:
    found = installed.get("networkpolicies", "-n", "llm-test")["items"]
    assert {p["metadata"]["name"] for p in found} == {"llmendpoint-operator", "llmendpoint-gateway"}


def test_the_operator_shows_gateways_a_token_that_they_ask_for(control_plane: Cluster) -> None:
    objects = render(control_plane)
    [operator] = [
        d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-operator"
    ]
    [gateway] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"]
    pod = operator["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [token] = [Path(a.partition("=")[2]) for a in container["args"] if a.startswith("--gateway-token=")]
    [mount] = [m for m in container["volumeMounts"] if Path(m["mountPath"]) == token.parent]
    [volume] = [v for v in pod["volumes"] if v["name"] == mount["name"]]
    [source] = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == AUDIENCE
    assert source["serviceAccountToken"]["path"] == token.name
    [picker] = gateway["spec"]["template"]["spec"]["initContainers"]
    served = make_parser().parse_args(picker["args"])
    assert served.operator == f"system:serviceaccount:llm-test:{pod['serviceAccountName']}"


def test_runtime_volumes_from_the_values_reach_the_runtime(control_plane: Cluster) -> None:
    volume = {"name": "cache", "persistentVolumeClaim": {"claimName": "cache", "readOnly": True}}
    objects = render(
        control_plane,
        'runtime.volumes=[{"name": "cache", "persistentVolumeClaim": {"claimName": "cache", "readOnly": true}}]',
        'runtime.volumeMounts=[{"name": "cache", "mountPath": "/cache", "readOnly": true}]',
    )
    [runtime] = of_kind(objects, "LLMRuntime")
    assert volume in runtime["spec"]["volumes"]
    assert {"name": "cache", "mountPath": "/cache", "readOnly": True} in runtime["spec"]["volumeMounts"]
    assert of_kind(render(control_plane, "runtime.install=false"), "LLMRuntime") == []


def test_traces_from_the_values_reach_the_gateway_and_the_engines(control_plane: Cluster) -> None:
    endpoint = "http://collector.monitoring.svc:4318/v1/traces"
    for settings, expected in (
        (
            (f'traces.endpoint="{endpoint}"', "traces.sampling=0.25", "simulator.install=true"),
            (endpoint, 0.25),
        ),
        ((), (None, 1.0)),
    ):
        objects = render(control_plane, *settings)
        [gateway] = [
            d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"
        ]
        picker = make_parser().parse_args(gateway["spec"]["template"]["spec"]["initContainers"][0]["args"])
        assert (picker.otlp_traces_endpoint, picker.trace_sampling) == expected
        for runtime in of_kind(objects, "LLMRuntime"):
            values = [one["value"] for one in runtime["spec"]["args"] if "trace" in one["value"]]
            engine = parse_server(["--model", "m", *values])
            assert (engine.otlp_traces_endpoint, engine.trace_sampling) == expected


def test_the_simulators_runtime_is_there_when_asked_for(control_plane: Cluster) -> None:
    [runtime] = of_kind(render(control_plane), "LLMRuntime")
    assert runtime["metadata"]["name"] == "llmendpoint"
    objects = render(control_plane, "simulator.install=true", "runtime.install=false")
    [simulator] = of_kind(objects, "LLMRuntime")
    assert simulator["metadata"]["name"] == "simulator"
    assert simulator["spec"]["image"] == "llmendpoint-simulator:0.1.0"


def test_only_the_picker_holds_a_token_in_the_gateways_pod(control_plane: Cluster) -> None:
    objects = render(control_plane)
    [gateway] = [d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-gateway"]
    pod = gateway["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    [picker], [envoy] = pod["initContainers"], pod["containers"]
    assert "token" in [mount["name"] for mount in picker["volumeMounts"]]
    assert "token" not in [mount["name"] for mount in envoy["volumeMounts"]]


@pytest.fixture(scope="module")
def installed(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The chart, installed by Helm into a namespace that enforces the restricted level."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm-test", "labels": labels}}
    control_plane.apply(namespace)
    values: Path = tmp_path_factory.mktemp("chart") / "values.yaml"
    values.write_text(yaml.safe_dump({"gateway": {"replicas": 1}}))
    control_plane.helm("upgrade", "--install", "llmendpoint", str(CHART), "-n", "llm-test", "-f", str(values))
    yield control_plane
    control_plane.helm("uninstall", "llmendpoint", "-n", "llm-test")
    control_plane.kubectl("delete", "namespace", "llm-test", "--wait=false")


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_can_be_applied_as_it_is(installed: Cluster, path: Path) -> None:
    installed.kubectl("apply", "--dry-run=server", "-f", str(path))


@pytest.mark.parametrize("namespace", ["", "team-a"])
def test_the_notes_make_an_endpoint_where_it_is_served(installed: Cluster, namespace: str) -> None:
    flags = ["-n", "llm-test", "--set", f"watchNamespace={namespace}", "--dry-run=client"]
    text = installed.helm("install", "other", str(CHART), *flags).partition("NOTES:")[2]
    indented = text.partition("<<EOF\n")[2].partition("  EOF\n")[0]
    manifest = yaml.safe_load(indented)
    where = namespace or "default"
    assert manifest["metadata"]["namespace"] == where
    assert f'"model": "{where}/{manifest["metadata"]["name"]}"' in text
    manifest["metadata"]["namespace"] = "default"
    installed.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert "Set policies.mode to warn or enforce" in text


def test_a_release_in_production_is_not_warned_of(control_plane: Cluster) -> None:
    flags = ["-n", "llm-test", "--set", "policies.mode=enforce", "--dry-run=client"]
    notes = control_plane.helm("install", "other", str(CHART), *flags).partition("NOTES:")[2]
    assert "Note:" not in notes
    alone = control_plane.helm("install", "other", str(CHART), *flags, "--set", "gateway.replicas=1")
    assert "Set gateway.replicas to 2" in alone.partition("NOTES:")[2]


def test_the_readme_of_the_chart_names_values_that_there_are(control_plane: Cluster) -> None:
    readme = control_plane.helm("show", "readme", str(CHART))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    named = re.findall(r"`([a-z][A-Za-z]+(?:\.[A-Za-z]+)*)`", readme.partition("| you want to")[2])
    assert len(named) >= 7
    for name in named:
        found: Any = values
        for part in name.split("."):
            found = found[part]


def test_with_keda_both_sides_get_certificates_of_one_authority(control_plane: Cluster) -> None:
    objects = render(control_plane, "keda.enabled=true", 'keda.namespace="keda-system"')
    ours, theirs = of_kind(objects, "Secret")
    assert (ours["metadata"]["namespace"], theirs["metadata"]["namespace"]) == ("llm-test", "keda-system")
    assert ours["data"]["ca.crt"] == theirs["data"]["ca.crt"]
    certificate = x509.load_pem_x509_certificate(b64decode(ours["data"]["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "llmendpoint-operator.llm-test.svc" in names.get_values_for_type(x509.DNSName)
    [authentication] = of_kind(objects, "ClusterTriggerAuthentication")
    assert {item["name"] for item in authentication["spec"]["secretTargetRef"]} == {
        theirs["metadata"]["name"]
    }
    operator = next(
        d for d in of_kind(objects, "Deployment") if d["metadata"]["name"] == "llmendpoint-operator"
    )
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--keda-authentication={authentication['metadata']['name']}" in arguments
    assert "--keda-address=llmendpoint-operator.llm-test.svc:8083" in arguments


def test_without_keda_nothing_of_it_is_there(control_plane: Cluster) -> None:
    objects = render(control_plane)
    assert of_kind(objects, "Secret", "ClusterTriggerAuthentication") == []
    own = render(control_plane, "keda.enabled=true", "keda.createCertificates=false")
    assert of_kind(own, "Secret", "ClusterTriggerAuthentication") == []
