"""The examples in deploy/: what they say is what qwink takes."""

from __future__ import annotations

import configparser
import importlib
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.dockerfile import parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def image() -> dict[str, str]:
    return dict(parse((DEPLOY / "Dockerfile").read_text("utf-8"))[-1].steps)


def takes(arguments: list[str], **environment: str) -> str:
    """What `qwink serve` makes of these arguments: its options, or a failing test."""
    command = [sys.executable, "-m", "qwink", *arguments, "--print-config"]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("QWINK_")}
    ran = subprocess.run(
        command, env=inherited | environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_compose() -> None:
    service = documents("compose.yaml")[0]["services"]["qwink"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert "port = 8000" in takes(service["command"])
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    volume, _, place = service["volumes"][0].partition(":")
    assert volume in documents("compose.yaml")[0]["volumes"]
    assert place == image()["VOLUME"]


def test_kuberay() -> None:
    """The options are those of `qwink serve`, and the deployment is what they make."""
    [service] = documents("kuberay.yaml")
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    [application] = config["applications"]
    module, _, name = application["import_path"].partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's imports
        build = getattr(importlib.import_module(module), name)
        made = build(application["args"])
    assert made._bound_deployment.name == "front"
    given = [f"--{key.replace('_', '-')}={value}" for key, value in application["args"].items()]
    printed = takes(["serve", "--ray", "auto", *given])
    assert 'model = "nano"' in printed
    assert 'replicas = "1-4"' in printed
    port = config["http_options"]["port"]
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [group["template"]["spec"]["containers"][0] for group in groups]
    assert {"name": "serve", "containerPort": port} in containers[0]["ports"]
    text = (DEPLOY / "Dockerfile.ray").read_text("utf-8")
    for container in containers:
        assert f"-t {container['image']} ." in text
        assert float(container["resources"]["requests"]["cpu"]) >= application["args"]["threads"]
        keys = {entry["name"]: entry for entry in container["env"]}
        assert keys["QWINK_API_KEYS"]["valueFrom"]["secretKeyRef"]["name"] == "qwink"
    home = dict(parse(text)[-1].steps)["ENV"]
    assert f"QWINK_HOME={containers[1]['volumeMounts'][0]['mountPath']}" in home


def test_kubernetes() -> None:
    claim, deployment, service = documents("kubernetes.yaml")
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    port = container["ports"][0]["containerPort"]
    # Also where somebody leaves the service links on.
    assert f"port = {port}" in takes(container["args"], QWINK_PORT="tcp://10.0.0.7:8000")
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == deployment["spec"]["selector"]["matchLabels"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    home = volumes[mounts[image()["VOLUME"]]]
    assert home["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "qwink.service").read_text("utf-8"))
    return dict(parser["Service"])


def test_the_unit_of_systemd_makes_no_noise(tmp_path: Path) -> None:
    """What the unit hides of /proc is hidden here too; ONNX Runtime then prints nothing."""
    service = unit()
    options = ["hidepid=invisible"] if service.get("ProtectProc") == "invisible" else []
    options += ["subset=pid"] if service.get("ProcSubset") == "pid" else []
    assert "subset=pid" not in options
    mount = f"mount -t proc -o {','.join(options) or 'rw'} proc /proc"
    unshare = ["unshare", "--mount", "--pid", "--fork", "--map-root-user"]
    able = (
        shutil.which("unshare")
        and not subprocess.run(
            [*unshare, "sh", "-c", mount], capture_output=True, check=False
        ).returncode
    )
    if not able:
        pytest.skip("this machine lets nobody mount /proc as the unit does")
    ask = f"{mount} && exec {sys.executable} -m qwink ask -q Hi --model nano --max-tokens 2"
    environment = os.environ | {"QWINK_HOME": str(tmp_path)}
    ran = subprocess.run(
        [*unshare, "sh", "-c", ask], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert not [line for line in ran.stderr.splitlines() if not line.startswith("qwink: ")]
