"""The command line in processes of its own: streams, statuses, and one clear line for what cannot be."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from memtui.inject.preflight import check
from memtui.sources.program import NotSupervised
from memtui.sources.program_state import program_state
from memtui.wire import codec
from memtui.wire.frames import PROTOCOL
from tests.support.programs import require_torch
from tests.support.sessions import hello
from tests.support.supervised import Programs, alive, wait_for_end, wait_until
from tests.support.virtual_gpu import require_virtual_gpu

FOLDER = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    runtime = tmp_path_factory.mktemp("run")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MEMTUI_", "XDG_"))}
    return {**inherited, "MEMTUI_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(FOLDER)}


def memtui(env: dict[str, str], *words: str, cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memtui", *words],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> bool:
    """One line on standard error that says so, nothing else, and a status that is not 0."""
    assert done.stdout == ""
    assert done.stderr.startswith("memtui: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(part in done.stderr for part in parts), done.stderr
    return done.returncode != 0


def test_a_program_keeps_its_streams_and_its_status(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Standard output is the program's alone; memtui's lines are on standard error, beside the program's."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\nprint('out', sys.argv[1:])\nprint('err', file=sys.stderr)\ntime.sleep(1.6)\nsys.exit(3)\n"
    )

    done = memtui(env, "run", str(script), "--frames", "1", "-x")

    assert done.returncode == 3
    assert done.stdout == "out ['--frames', '1', '-x']\n"
    ours = [line for line in done.stderr.splitlines() if line.startswith("memtui: ")]
    assert [line for line in done.stderr.splitlines() if line and line not in ours] == ["err"]
    assert "no PyTorch figures" in ours[0]
    assert "exited with status 3" in ours[-1]


def test_modules_commands_and_quiet(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The other two ways to name a program."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__main__.py").write_text("import sys\nprint(sys.argv[1:])\n")

    module = memtui(env, "run", "--quiet", "-m", "pkg", "-m", "x", cwd=tmp_path)
    command = memtui(env, "run", "--quiet", "--", "sh", "-c", "echo $0 $1; kill -TERM $$", "a", "--", cwd=tmp_path)
    folder = memtui(env, "run", "--quiet", "pkg", "y", cwd=tmp_path)

    assert (module.stdout, module.stderr, module.returncode) == ("['-m', 'x']\n", "", 0)
    assert (command.stdout, command.stderr, command.returncode) == ("a --\n", "", -signal.SIGTERM)
    assert folder.stdout == "['y']\n"


def test_enough_lines_leave_the_program_running(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """GIVEN --frames 1, THEN memtui goes with status 0, says where the program is, and the program goes on."""
    script = tmp_path / "train.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(4)\nopen('done', 'w').close()\n")
    output, errors = tmp_path / "out", tmp_path / "err"
    # Files: of a pipe the program would keep the other end.
    with output.open("w") as stream, errors.open("w") as error_stream:
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "memtui", "run", "--frames", "1", str(script)],
            env=env,
            cwd=tmp_path,
            stdout=stream,
            stderr=error_stream,
            stdin=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
    pid = output.read_text().strip()

    assert done.returncode == 0
    assert time.monotonic() - begun < 3.5
    assert (
        errors.read_text().splitlines()[-1]
        == f"memtui: process {pid} goes on; memtui attach --pid {pid} shows it again"
    )
    deadline = time.monotonic() + 15
    while not (tmp_path / "done").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tmp_path / "done").exists()


def test_an_interrupt_reaches_the_program(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """As without memtui: its own handler runs, its own status comes back."""
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time\ntry:\n    print('ready', flush=True)\n    time.sleep(30)\n"
        "except KeyboardInterrupt:\n    print('saved')\n    sys.exit(7)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "memtui", "run", "--quiet", str(script)],
        env=env,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)

    assert process.stdout.read() == "saved\n"
    assert process.wait(20) == 7


def test_a_log_of_a_process_without_pytorch(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Its readings are written, and how it ended; `open` shows it."""
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(1.2)\nraise SystemExit(5)\n")
    log = tmp_path / "log"

    done = memtui(env, "run", "--quiet", "--log", str(log), str(script))
    shown = memtui(env, "open", str(log))

    assert done.returncode == 5
    assert '"kind":"end"' in log.read_text().splitlines()[-1]
    assert '"exit_status":5' in log.read_text().splitlines()[-1]
    assert "exited with status 5" in shown.stdout


def test_programs_that_cannot_be(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Each in one line."""
    (tmp_path / "notes.yaml").write_text("a: b: c\n")
    (tmp_path / "go.sh").write_text("#!/bin/sh\nls\n")
    (tmp_path / "plain").mkdir()
    (tmp_path / "secret.py").write_text("")

    assert refused(memtui(env, "run", "nothing.py", cwd=tmp_path), "no such script: nothing.py")
    assert refused(memtui(env, "run", sys.executable), "binary file", "memtui run -- ")
    assert refused(memtui(env, "run", "notes.yaml", cwd=tmp_path), "notes.yaml is not Python, line 1")
    assert refused(memtui(env, "run", "go.sh", cwd=tmp_path), "go.sh is not Python (#!/bin/sh)")
    assert refused(memtui(env, "run", "plain", cwd=tmp_path), "folder without __main__.py")
    assert refused(memtui(env, "run", "--", "no-such-command"), "no-such-command")
    assert refused(memtui(env, "run", "--", "plain", cwd=tmp_path), "plain is a folder, not a command")
    assert refused(memtui(env, "run", ""), "name a program")
    assert refused(memtui(env, "run", "--", ""), "name a command")
    assert memtui(env, "run", "--", "no-such-command").returncode == 127
    assert refused(memtui(env, "run"), "name a program")
    assert refused(memtui(env, "run", "--frames", "0", "x.py"), "at least 1")
    assert refused(memtui(env, "run", "--log", "/nonexistent/log", "secret.py", cwd=tmp_path), "cannot write")


def test_modules_that_cannot_be(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Known before anything is started, and without importing any of it."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("open('imported', 'w').close()\n")
    (tmp_path / "script.py").write_text("")

    assert refused(memtui(env, "run", "-m", "nosuchmod", cwd=tmp_path), "no module named nosuchmod", "install it")
    assert refused(memtui(env, "run", "-m", "pkg.nosuch", cwd=tmp_path), "no module named pkg.nosuch")
    assert refused(memtui(env, "run", "-m", "script.py", cwd=tmp_path), "a script, not a module: memtui run script.py")
    assert refused(memtui(env, "run", "-m", "other.py", cwd=tmp_path), "without .py")
    assert refused(memtui(env, "run", "-m", "pkg", cwd=tmp_path), "pkg is a package without __main__")
    assert not (tmp_path / "imported").exists()


def test_modules_that_only_their_package_knows(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Whether they are there is not certain before they are imported: they are tried."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "train.py").write_text("print('trained')\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("__path__.append('elsewhere')\n")

    done = memtui(env, "run", "--quiet", "-m", "pkg.train", cwd=tmp_path)

    assert (done.stdout, done.stderr, done.returncode) == ("trained\n", "", 0)


def test_runtime_folders_that_cannot_be(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Too long, or not to be made: the line names the variable that mends it."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "file").write_text("")
    long = str(tmp_path / ("x" * 100))

    for folder, part in (
        (long, "too long"),
        (str(tmp_path / "file"), "not a folder"),
        ("/proc/nope", "no private folder"),
    ):
        done = memtui({**env, "MEMTUI_RUNTIME_DIR": folder}, "run", "train.py", cwd=tmp_path)
        assert refused(done, part, "MEMTUI_RUNTIME_DIR")


def test_processes_that_cannot_be_watched(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """No such one, a thread, a dead one: each with the way out."""
    assert refused(memtui(env, "attach", "--pid", "4194303"), "no such process: 4194303")
    assert refused(memtui(env, "attach", "--pid", "0"), "no such process")
    assert refused(memtui(env, "attach", "--pid", "x"), "--pid")

    zombie = subprocess.Popen(["true"])
    time.sleep(0.3)
    assert refused(memtui(env, "attach", "--pid", str(zombie.pid)), "has ended")
    zombie.wait()

    threaded = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import threading, time\n"
            "threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\ntime.sleep(20)",
        ]
    )
    try:
        deadline = time.monotonic() + 10
        threads: list[str] = []
        while len(threads) < 2 and time.monotonic() < deadline:
            threads = os.listdir(f"/proc/{threaded.pid}/task")
        thread = next(int(name) for name in threads if int(name) != threaded.pid)
        assert refused(memtui(env, "attach", "--pid", str(thread)), f"attach --pid {threaded.pid}")
    finally:
        threaded.kill()
        threaded.wait()


def test_exact_peaks_are_for_programs_that_start(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """`run` asks for them in the program's environment, and only where it is told to; `attach` says who can."""
    script = tmp_path / "train.py"
    script.write_text("import os\nprint(os.environ.get('MEMTUI_EXACT_PEAKS'))\n")

    assert memtui(env, "run", "--quiet", "--exact-peaks", str(script)).stdout == "1\n"
    assert memtui(env, "run", "--quiet", str(script), "--exact-peaks").stdout == "None\n"
    attach = ("attach", "--exact-peaks", "--pid", str(os.getpid()))
    assert refused(memtui(env, *attach), "memtui run --exact-peaks", "memtui.start(exact_peaks=True)")
    assert refused(memtui(env, "open", "--exact-peaks", "x"), "--exact-peaks")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
def test_another_users_process() -> None:
    """Names the user, and sudo."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        refusal = check(os.getppid()).refusal
        os.write(write_end, refusal.text.encode() if refusal is not None else b"allowed")
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    told = os.read(read_end, 4096).decode()
    os.close(read_end)

    assert told == f"process {os.getpid()} belongs to user root: sudo memtui attach --pid {os.getpid()}"


def test_an_agent_of_another_version(env: dict[str, str]) -> None:
    """Refused before the screen is taken."""
    server = (
        "import os, socket, sys\n"
        "path = os.path.join(sys.argv[1], f'agent-{os.getpid()}.sock')\n"
        "listener = socket.socket(socket.AF_UNIX)\nlistener.bind(path)\nlistener.listen()\nprint('up', flush=True)\n"
        "connection, _ = listener.accept()\nconnection.recv(4096)\n"
        "connection.sendall(bytes.fromhex(sys.argv[2]))\nconnection.recv(1)\n"
    )
    greeting = codec.encode(hello(protocol=PROTOCOL + 1, agent="9.0")).hex()
    process = subprocess.Popen(
        [sys.executable, "-c", server, env["MEMTUI_RUNTIME_DIR"], greeting], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert refused(
            memtui(env, "attach", "--pid", str(process.pid)), "newer than this viewer", "upgrade this memtui"
        )
    finally:
        process.kill()
        process.wait()


def test_what_is_no_agent(env: dict[str, str]) -> None:
    """Something else listens there: told once, and not tried again."""
    code = _SILENT_AGENT.replace(
        "time.sleep(60)", "peer = listener.accept()[0]\npeer.sendall(b'\\xff' * 64)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, env["MEMTUI_RUNTIME_DIR"]], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        done = memtui(env, "attach", "--pid", str(process.pid))
        assert refused(done, "is no memtui agent")
        assert "again" not in done.stderr
    finally:
        process.kill()
        process.communicate()


def test_a_stale_socket(env: dict[str, str]) -> None:
    """Left behind by a process of this pid that was killed."""
    path = pathlib.Path(env["MEMTUI_RUNTIME_DIR"], f"agent-{os.getpid()}.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert refused(memtui(env, "attach", "--pid", str(os.getpid())), "nobody listens")


def test_files_that_are_no_logs(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """Each in one line."""
    (tmp_path / "x").write_text("x\n")
    assert refused(memtui(env, "open", str(tmp_path / "x")), "is not a memtui log")
    assert refused(memtui(env, "open", str(tmp_path / "y")), "No such file")
    assert refused(memtui(env, "open", str(tmp_path)), "directory")


def test_a_log_that_cannot_be_written_on(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The program is not hurt, and one line says that the log ends, also where no lines are wanted."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(1.2)\nprint('done')\n")

    done = memtui(env, "run", "--quiet", "--log", "/dev/full", str(script))

    assert (done.stdout, done.returncode) == ("done\n", 0)
    assert done.stderr.lstrip("\n") == "memtui: the log /dev/full ends here: No space left on device\n"


_SILENT_AGENT = (
    "import os, socket, sys, time\n"
    "path = os.path.join(sys.argv[1], f'agent-{os.getpid()}.sock')\n"
    "listener = socket.socket(socket.AF_UNIX)\nlistener.bind(path)\nlistener.listen()\nprint('up', flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.mark.parametrize("stopped", [True, False])
def test_an_agent_that_does_not_answer(env: dict[str, str], stopped: bool) -> None:
    """The lines say so, and where the process is stopped that too."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SILENT_AGENT, env["MEMTUI_RUNTIME_DIR"]], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        if stopped:
            process.send_signal(signal.SIGSTOP)
        done = memtui(env, "attach", "--pid", str(process.pid), "--frames", "3")
        expected = "the process is stopped (T)" if stopped else "the agent is silent"
        assert expected in done.stdout.splitlines()[-1]
        assert done.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_broken_lines_of_a_log_are_counted(env: dict[str, str], tmp_path: pathlib.Path) -> None:
    """In one line on standard error; the rest is shown."""
    script = tmp_path / "train.py"
    script.write_text("import time\ntime.sleep(1.2)\n")
    log = tmp_path / "log"
    memtui(env, "run", "--quiet", "--log", str(log), str(script))
    first, *others = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, others[0], b"garbage\n", *others[1:]])[:-5])

    shown = memtui(env, "open", str(log))

    assert shown.stderr == "memtui: 2 lines of the log cannot be read; the last one is cut off\n"
    assert shown.returncode == 0


def test_a_demo_ends_its_training(env: dict[str, str]) -> None:
    """Enough lines, or a reader that goes: nothing is left, and nobody holds the streams any longer."""
    require_torch()
    env = {**env, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

    done = memtui(env, "demo", "--frames", "2")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 2
    deadline = time.monotonic() + 15
    while os.listdir(env["MEMTUI_RUNTIME_DIR"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [name for name in os.listdir(env["MEMTUI_RUNTIME_DIR"]) if name.startswith("run-")]


def test_a_demo_that_does_not_fit_has_failed(env: dict[str, str]) -> None:
    """One line says so, beside the lines that were asked for."""
    require_virtual_gpu()

    done = memtui(env, "demo", "--virtual-gpu", "512MiB")

    assert done.returncode == 1
    assert done.stderr.startswith("memtui: the training failed: exit code 1: ")
    assert "out of memory" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_that_ended_meanwhile(env: dict[str, str], programs: Programs, sockets: pathlib.Path) -> None:
    """Its output and status are there once, for whoever asks for them; then nothing is left of it."""
    env = {**env, "MEMTUI_RUNTIME_DIR": str(sockets)}
    start = programs.python("import sys; print('epoch 9'); sys.exit(3)")
    wait_for_end(start)

    assert [line for line in memtui(env, "ps").stdout.splitlines() if str(start.pid) in line and "ended" in line]
    done = memtui(env, "attach", "--pid", str(start.pid))

    assert done.stdout.splitlines() == ["epoch 9", "memtui: exited with status 3"]
    assert (done.stderr, done.returncode) == ("", 3)
    wait_until(lambda: not alive(start.supervisor_pid), "the supervisor's end")
    assert refused(memtui(env, "attach", "--pid", str(start.pid)), f"no such process: {start.pid}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else as well")
def test_root_watches_anothers_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its supervisor is found in its owner's folder, and nobody but that owner may be it."""
    uid = 54_321
    monkeypatch.delenv("MEMTUI_RUNTIME_DIR", raising=False)
    folder = pathlib.Path(f"/tmp/memtui-{uid}")
    folder.mkdir(mode=0o700)
    os.chown(folder, uid, uid)
    with socket.socket(socket.AF_UNIX) as honest, socket.socket(socket.AF_UNIX) as trap:
        try:
            for listener, number, owner in ((honest, 4_194_301, uid), (trap, 4_194_302, uid + 1)):
                listener.bind(str(folder / f"run-{number}.sock"))
                os.seteuid(owner)  # whose credentials listening records
                try:
                    listener.listen()
                finally:
                    os.seteuid(0)
            with pytest.raises(NotSupervised, match="belongs to another user"):
                program_state(4_194_302, 0.2)
            with pytest.raises(NotSupervised, match="does not answer"):
                program_state(4_194_301, 0.2)
        finally:
            shutil.rmtree(folder)


def test_help_is_quick_and_complete(env: dict[str, str]) -> None:
    """Nothing heavy is imported for it."""
    code = (
        "import sys\nfrom memtui.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\nprint(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)

    assert all(name in done.stdout for name in ("run", "attach", "ps", "open", "demo"))
    loaded = set(done.stderr.replace("'", "").strip("[]\n").split(", "))
    assert not loaded & {"textual", "rich", "torch", "asyncio", "psutil", "pynvml", "pyte", "memtui.sources.monitor"}
