"""A program is run for real, and nothing of what it does is kept."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from memtui.planning.capability import Capability
from memtui.planning.errors import PlanningError
from memtui.planning.throwaway import throwaway
from tests.support import thrown
from tests.support.thrown import WRECKING, World, everything_in

USERS = ("own", "nobody")


@pytest.fixture(params=USERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with thrown.a_world(thrown.the_user(request.param)) as made:
        yield made


def need_layers(answer: dict[str, object]) -> None:
    capability = answer["capability"]
    assert isinstance(capability, dict)
    if not capability["layered"]:
        pytest.skip(f"no layers here: {capability['problem']}")


@dataclass(frozen=True)
class Wreck:
    """A run of the program `wrecking`, which does to files what can be done, and what was there before."""

    world: World
    before: dict[str, tuple[object, ...]]
    mounts: bytes
    answer: dict[str, Any]

    @property
    def found(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.answer["stdout"])
        return found


@pytest.fixture(scope="module", params=USERS)
def wreck(request: pytest.FixtureRequest) -> Iterator[Wreck]:
    with thrown.a_world(thrown.the_user(request.param)) as world:
        before, mounts = everything_in(world.top), pathlib.Path("/proc/self/mounts").read_bytes()
        answer = world.run(WRECKING, variables={"WRECK_HOME": world.top.name + "-stray"}, writable=[world.shared])
        need_layers(answer)
        yield Wreck(world, before, mounts, answer)


def test_nothing_is_kept_but_what_is_shared(wreck: Wreck) -> None:
    """Files written, changed, deleted, renamed in the folder, at home, in /tmp, in / and in shared memory."""
    world, answer = wreck.world, wreck.answer
    assert answer["status"] == 7, answer["stderr"]
    assert answer["warnings"] == []
    assert (world.shared / "answer").read_text(encoding="ascii") == "42"
    assert without(world, everything_in(world.top)) == without(world, wreck.before)
    assert os.listdir(world.top / "tmp") == []  # where the scratch folder was
    for folder in ("/", "/tmp", "/dev/shm"):
        assert not os.path.exists(os.path.join(folder, world.top.name + "-stray"))
    assert pathlib.Path("/proc/self/mounts").read_bytes() == wreck.mounts
    assert answer["discarded"]["total_bytes"] > 2 << 20  # a MiB in each of two folders


def without(world: World, found: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """Without the shared folder, and the temporary one: the scratch folder came and went there."""
    apart = (str(world.shared), str(world.top / "tmp"))
    return {path: what for path, what in found.items() if not path.startswith(apart)}


def test_the_program_sees_itself_where_it_is(wreck: Wreck) -> None:
    world, found = wreck.world, wreck.found
    user = os.getuid() if world.user.number is None else world.user.number
    assert found["pid"] == wreck.answer["pid"]
    assert (found["uid"], found["home owner"]) == (user, user)
    assert found["cwd"] == str(world.project)
    assert found["temporary"] == str(world.top / "tmp")
    assert found["beside it"] == []  # of the scratch folder nothing is to be seen
    assert found["weights"]
    assert found["cached"] == "from the hub"


def test_there_is_no_network_but_the_machine_itself(wreck: Wreck) -> None:
    found = wreck.found
    assert found["name"] == "gaierror"
    assert found["address"] == "OSError"  # unreachable, not a time that ran out
    assert found["outside socket"] == "ConnectionRefusedError"
    assert found["seconds"] < 2
    assert found["own name"] == "127.0.0.1"
    assert found["hosts"].splitlines()[0] == f"127.0.0.1 localhost {socket.gethostname()}"
    assert found["asked for names"] == [["files"]]  # no server, and no service of this machine that would ask one
    assert found["loopback"]
    assert found["offline"] == "1"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_signals_reach_the_program(world: World, name: str) -> None:
    """And all of its group: a child that it waits for."""
    code = "import os, subprocess; print(os.getpid(), flush=True); subprocess.run(['sleep', '47.11'])"
    before = everything_in(world.project)
    answer = world.run("-c", code, signal=name)
    need_layers(answer)
    assert answer["status"] == (-15 if name == "SIGTERM" else -9)
    assert answer["discarded"]["killed"] == []
    assert everything_in(world.project) == before
    assert os.listdir(world.top / "tmp") == []
    assert not processes_with("47.11")


def test_what_stays_behind_is_ended(world: World) -> None:
    code = (
        "import subprocess as s; n = s.DEVNULL;"
        "s.Popen(['sleep', '48.12'], start_new_session=True, stdin=n, stdout=n, stderr=n)"
    )
    answer = world.run("-c", code)
    need_layers(answer)
    assert answer["status"] == 0
    assert len(answer["discarded"]["killed"]) == 1
    assert not processes_with("48.12")


def processes_with(argument: str) -> list[str]:
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if argument.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_a_socket_in_a_shared_folder_is_reached_from_outside(world: World) -> None:
    """As the agent's is: by its path, and it is the same user and the same pid that answers."""
    code = (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind(os.environ['SHARED'] + '/agent.sock');"
        "s.listen(); c, _ = s.accept(); c.sendall(b'%d' % os.getpid()); c.recv(1)"
    )
    heard: list[bytes] = []
    path = world.shared / "agent.sock"

    def ask() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as asking:
                try:
                    asking.connect(str(path))
                except OSError:
                    time.sleep(0.05)
                    continue
                heard.append(asking.recv(20))
                credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                heard.append(credentials)
                return

    thread = threading.Thread(target=ask)
    thread.start()
    answer = world.run("-c", code, writable=[world.shared])
    thread.join()
    need_layers(answer)
    pid, uid = (int.from_bytes(heard[1][at : at + 4], "little") for at in (0, 4))
    assert int(heard[0]) == pid == answer["pid"]
    assert uid == (os.getuid() if world.user.number is None else world.user.number)


def test_a_link_as_working_folder_stays_one(world: World) -> None:
    link = world.top / "link"
    link.symlink_to(world.project)
    before = everything_in(world.project)
    code = "import os; print(os.environ['PWD']); open('made', 'w')"
    answer = world.run("-c", code, variables={"PWD": str(link)})
    need_layers(answer)
    assert answer["stdout"] == f"{link}\n"
    assert answer["status"] == 0, answer["stderr"]
    assert everything_in(world.project) == before


def test_a_command_that_is_not_there(world: World) -> None:
    answer = world.run(command=["no-such-command"])
    need_layers(answer)
    assert answer["status"] == 127
    assert answer["stderr"] == "memtui: there is no command no-such-command\n"


def test_what_is_to_be_shared_has_to_be_there(tmp_path: pathlib.Path) -> None:
    nowhere = Capability(layered=False, network_off=False, base=tmp_path)
    with pytest.raises(PlanningError, match="absent is to be shared and does not exist"):
        throwaway(["true"], str(tmp_path), {}, nowhere, writable=[tmp_path / "absent"])
    assert os.listdir(tmp_path) == []


def test_kept_if_that_is_wished(world: World) -> None:
    answer = world.run("-c", "open('made', 'w')", keep=True)
    assert (world.project / "made").exists()
    assert answer["discarded"] is None
    assert answer["warnings"] == ["what the program writes and sends is kept"]


def test_a_folder_of_another_group_is_copied_into_the_layer() -> None:
    """A layer of a plain user cannot take changes to what belongs to his second group: project folders do."""
    user = thrown.the_user("nobody")
    with thrown.a_world(thrown.User(user.number, user.python, groups=(100,))) as world:
        for path in (world.project, *world.project.iterdir()):
            os.chown(path, user.number or 0, 100)
        before = everything_in(world.project)
        answer = world.run(WRECKING)
        need_layers(answer)
        assert answer["capability"]["cwd_copied"]
        assert json.loads(answer["stdout"])["environment"] == "home = /usr/bin"
        assert answer["status"] == 7, answer["stderr"]
        assert json.loads(answer["stdout"])["cwd"] == str(world.project)
        assert json.loads(answer["stdout"])["weights"]  # too big to copy: the original, to be read
        assert answer["warnings"] == [
            f"{world.project} is a copy for the program: not all in it is of your user and group, or something is "
            "mounted there; read-only in it: weights.bin (80.0 MiB)"
        ]
        assert everything_in(world.project) == before


def test_a_folder_with_a_mount_in_it_can_be_written_to() -> None:
    """What is mounted there can be read."""

    def mount_data() -> None:
        thrown.own_mounts()
        thrown.mount("tmpfs", str(world.project / "data"), "tmpfs", 0, "")
        (world.project / "data" / "set").write_text("set", encoding="ascii")

    thrown.need(thrown.own_mounts)
    with thrown.a_world(thrown.the_user("own")) as world:
        (world.project / "data").mkdir()
        before = everything_in(world.project)
        code = "open('made', 'w').close(); print(open('data/set').read()); open('data/made', 'w')"
        answer = world.run("-c", code, before=mount_data)
        need_layers(answer)
        assert answer["capability"]["cwd_copied"]
        assert answer["stdout"] == "set\n"
        assert "Read-only file system" in answer["stderr"]
        assert everything_in(world.project) == before


def stack_layers(folder: pathlib.Path) -> None:
    """Two layers over a folder, in a mount namespace of this process's own: the system allows no third."""
    thrown.own_mounts()
    base = f"{folder}-stacks"
    os.mkdir(base)
    thrown.mount("tmpfs", base, "tmpfs", 0, "")
    for number in "12":
        upper, work = f"{base}/upper{number}", f"{base}/work{number}"
        os.mkdir(upper)
        os.mkdir(work)
        thrown.mount("overlay", str(folder), "overlay", 0, f"lowerdir={folder},upperdir={upper},workdir={work}")


@pytest.fixture
def stacked() -> Iterator[tuple[World, pathlib.Path]]:
    thrown.need(thrown.own_mounts)
    with thrown.a_world(thrown.the_user("own")) as world:
        data = world.top / "data"
        data.mkdir()
        (data / "kept").write_text("kept", encoding="ascii")
        yield world, data


def test_what_takes_no_layer_is_read_only_and_named(stacked: tuple[World, pathlib.Path]) -> None:
    world, data = stacked
    code = f"open('made', 'w'); print(open('{data}/kept').read()); open('{data}/made', 'w')"
    answer = world.run("-c", code, before=lambda: stack_layers(data))
    need_layers(answer)
    assert answer["capability"]["read_only"] == [str(data)]
    assert answer["warnings"] == [f"{data} is read-only for the program"]
    assert answer["stdout"] == "kept\n"
    assert "Read-only file system" in answer["stderr"]
    assert not (world.project / "made").exists()


def test_a_copy_too_is_cut_off_from_the_network(stacked: tuple[World, pathlib.Path]) -> None:
    """Where only the layers are not to be had: the scratch folder is on what takes none."""
    world, data = stacked
    before = everything_in(world.project)
    answer = world.run(WRECKING, before=lambda: stack_layers(data), base=str(data))
    capability = answer["capability"]
    assert (capability["layered"], capability["network_off"]) == (False, True)
    assert capability["problem"].startswith("no layer over files here: ")
    assert answer["status"] == 7, answer["stderr"]
    found = json.loads(answer["stdout"])
    assert (found["name"], found["address"], found["own name"]) == ("gaierror", "OSError", "127.0.0.1")
    assert found["seconds"] < 2
    assert [line.partition(":")[0] for line in answer["warnings"]] == [
        "what the program writes outside its folder is kept",
        f"not in the copy of {world.project}",
    ]
    assert everything_in(world.project) == before


def test_where_namespaces_are_forbidden_the_folder_is_copied(world: World) -> None:
    """For real: the system's own limit, in a namespace of the test."""

    def forbid() -> None:
        if world.user.number is not None:
            thrown.become(world.user, None)
            thrown.can_be_looked_into()
        thrown.own_users()

    thrown.need(forbid)
    before = everything_in(world.top)
    answer = thrown.World(world.top, thrown.User(None, world.user.python)).run(WRECKING, before=forbid, forbidden=True)
    capability = answer["capability"]
    assert not capability["layered"]
    assert not capability["network_off"]
    assert capability["problem"].startswith("no namespaces for users here: ")
    assert capability["fix"] == "allow it: sudo sysctl user.max_user_namespaces=15000"
    assert answer["status"] == 7, answer["stderr"]
    found = json.loads(answer["stdout"])
    assert found["cwd"].startswith(str(world.top / "tmp"))
    assert found["temporary"].startswith(str(world.top / "tmp"))
    assert not found["weights"]
    assert found["offline"] == "1"
    assert [line.partition(":")[0] for line in answer["warnings"]] == [
        "what the program writes outside its folder is kept",
        "the network is there",
        f"not in the copy of {world.project}",
    ]
    assert (world.shared / "answer").exists()  # nothing held it back
    assert without(world, everything_in(world.top)) == without(world, before)
    assert os.listdir(world.top / "tmp") == []
    assert answer["discarded"]["total_bytes"] > 1 << 20


def test_a_filter_on_calls_is_named(world: World) -> None:
    thrown.need(thrown.filter_namespaces)
    answer = world.run("-c", "open('made', 'w')", before=thrown.filter_namespaces)
    capability = answer["capability"]
    assert (capability["layered"], capability["network_off"]) == (False, False)
    assert capability["problem"] == "no namespaces for users here: unshare: Operation not permitted"
    assert capability["fix"] == "start the container with --security-opt seccomp=unconfined"
    assert answer["status"] == 0
    assert not (world.project / "made").exists()
