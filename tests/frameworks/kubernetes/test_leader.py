"""packaging/kubernetes/leader.yaml: it has the form that Kubernetes requires, and its commands do what it promises.

The tests run the commands of two pods as processes, and play the kubelet: they start containers, and kill them.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "packaging/kubernetes"
SCRIPT = ROOT / "clients/shell/serverlock"
DEADLINE = 400  # ten times what a failover takes


def eventually(what, condition):
    end = time.monotonic() + DEADLINE
    while not (result := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)
    return result


def deployment():
    return next(it for it in yaml.safe_load_all((FOLDER / "leader.yaml").read_text()) if it["kind"] == "Deployment")


class Server:
    """A server with the module, on a free port."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [os.environ.get("REDIS_SERVER", "redis-server"), "--port", str(self.port), "--save", ""]
        command += ["--bind", "127.0.0.1", "--loadmodule", os.environ["SERVERLOCK_MODULE"]]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tempfile.gettempdir())
        eventually("the server replies", lambda: self.call("PING") == "PONG")

    def call(self, *words):
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def state(self, key):
        lines = self.call("LOCK.INFO", key).splitlines()
        return dict(zip(lines[::2], lines[1::2]))["state"]

    def end(self):
        self.process.kill()
        self.process.wait()


class Pod:
    """The containers of one pod, in a folder of their own instead of in images."""

    def __init__(self, server, name, *, own_lock=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"serverlock-{name}-"))
        (self.folder / "leader").mkdir()
        self.environment = {**os.environ, "SERVERLOCK_CLI": f"redis-cli -p {server.port}", "POD": str(self.folder)}
        self.own_lock = own_lock
        self.processes = []
        spec = deployment()["spec"]["template"]["spec"]
        self.containers = {it["name"]: it for it in spec["initContainers"] + spec["containers"]}

    def translated(self, words):
        places = {"/serverlock/serverlock": str(SCRIPT), "/leader/": f"{self.folder}/leader/"}
        for there, here in places.items():
            words = [word.replace(there, here) for word in words]
        if self.own_lock:
            words = [
                f"{word}-of-{self.folder.name}" if word in ("report", "report-prepare") else word for word in words
            ]
        return words

    def start(self, name, *more):
        """more: further lines of the container's own shell script."""
        container = self.containers[name]
        words = container["command"] + container.get("args", [])
        words[-1] = "\n".join((words[-1], *more))
        with (self.folder / name).open("a") as output:
            self.processes.append(
                subprocess.Popen(
                    self.translated(words),
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        return self.processes[-1]

    def said(self, name):
        return (self.folder / name).read_text()

    def leads(self):
        """What the probes of the program find out."""
        found = set()
        for probe in ("startupProbe", "livenessProbe"):
            command = self.translated(self.containers["report"][probe]["exec"]["command"])
            found.add(subprocess.run(command, env=self.environment, check=False).returncode == 0)
        return found == {True}

    def token(self):
        lines = [line for line in self.said("report").splitlines() if line.startswith("leading, token ")]
        return int(lines[-1].split()[-1]) if lines else None

    def kill(self):
        """Kills all of its processes at once, even those in process groups of their own."""
        mine = f"POD={self.folder}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mine in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, PermissionError):
                pass
        for process in self.processes:
            process.wait()

    def end(self):
        self.kill()
        shutil.rmtree(self.folder)


class LeaderTest(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.end)

    def pod(self, name, **options):
        pod = Pod(self.server, name, **options)
        self.addCleanup(pod.end)
        return pod

    def two(self, **options):
        """Two pods with the sidecar and the program, of which the first one leads."""
        pods = [self.pod(name, **options) for name in ("one", "two")]
        for pod in pods:
            pod.sidecar = pod.start("lead")
            pod.start("report")
            eventually("the first one leads", pods[0].token)
        return pods

    def test_the_files_have_the_form_that_kubernetes_requires(self):
        for file in ("leader.yaml", "statefulset.yaml"):
            for document in yaml.safe_load_all((FOLDER / file).read_text()):
                kubernetes_validate.validate(document, "1.37", strict=True)
        wrong = deployment()
        wrong["spec"]["replica"] = 2
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, "1.37", strict=True)

    def test_one_pod_leads_and_another_goes_on_after_it_was_killed(self):
        one, two = self.two()
        self.assertTrue(one.leads())
        self.assertFalse(two.leads())
        self.assertIsNone(two.token())
        one.kill()
        eventually("the other one leads", two.token)
        self.assertGreater(two.token(), one.token())
        self.assertTrue(two.leads())
        self.assertFalse(one.leads(), "its file was still valid when the other one began")

    def test_with_a_lock_each_both_lead(self):
        one, two = self.two(own_lock=True)
        eventually("both lead", two.token)
        self.assertTrue(one.leads() and two.leads())

    def test_a_sidecar_that_ends_hands_over_and_one_that_starts_again_waits(self):
        one, two = self.two()
        one.sidecar.terminate()
        self.assertEqual(one.sidecar.wait(DEADLINE), 143)
        self.assertFalse(one.leads())
        eventually("the other one leads", two.token)
        (one.folder / "leader/report").write_text("1 99999999999\n")
        self.assertFalse(one.leads(), "a file from before the machine's restart")
        one.start("lead")
        eventually("the file is gone", lambda: not (one.folder / "leader/report").exists())

    def test_a_lock_that_is_lost_is_reported_before_others_get_it(self):
        one, two = self.two()
        token = str(one.token())
        self.assertEqual(self.server.call("LOCK.RELEASE", "report", token), "1")
        self.assertEqual(one.sidecar.wait(DEADLINE), 75)
        self.assertFalse((one.folder / "leader/report").exists())
        eventually("the other one leads", two.token)

    def test_one_pod_prepares_at_a_time(self):
        token = self.server.call("LOCK.ACQUIRE", "report-prepare", "EX", "600")
        pods = [self.pod(name) for name in ("one", "two")]
        processes = [pod.start("prepare") for pod in pods]
        info = lambda: self.server.call("LOCK.INFO", "report-prepare").split()
        eventually("both wait", lambda: info()[info().index("waiters") + 1] == "2")
        self.assertEqual([pod.said("prepare") for pod in pods], ["", ""])
        self.assertEqual(self.server.call("LOCK.RELEASE", "report-prepare", token), "1")
        self.assertEqual([process.wait(DEADLINE) for process in processes], [0, 0])
        tokens = [int(pod.said("prepare").removeprefix("preparing, token ")) for pod in pods]
        self.assertEqual(len(set(tokens)), 2)
        self.assertEqual(self.server.state("report-prepare"), "free")

    def preparing(self, **options):
        """Two pods that prepare until a file appears; the first one has begun."""
        pods = [self.pod(name, **options) for name in ("one", "two")]
        for pod in pods:
            pod.preparing = pod.start("prepare", 'until [ -e "$POD/go" ]; do sleep 0.1; done')
            eventually("the first one prepares", lambda: pods[0].said("prepare"))
        return pods

    def test_another_pod_prepares_after_one_was_killed(self):
        one, two = self.preparing()
        self.assertEqual(two.said("prepare"), "")
        one.kill()
        # Within the lease and the margin: 31 s.
        eventually("the other one prepares", lambda: two.said("prepare"))
        (two.folder / "go").touch()
        self.assertEqual(two.preparing.wait(DEADLINE), 0)
        self.assertEqual(self.server.state("report-prepare"), "free")

    def test_with_a_lock_each_both_prepare(self):
        one, two = self.preparing(own_lock=True)
        eventually("both prepare", lambda: two.said("prepare"))
        self.assertIsNone(one.preparing.poll())


if __name__ == "__main__":
    unittest.main()
