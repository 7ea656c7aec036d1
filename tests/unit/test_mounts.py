"""Which folders get a layer."""

from __future__ import annotations

from memtui.planning.mounts import MAX_LAYERS, Layer, choose_layers, parse_mounts

# proc_pid_mountinfo(5): id, parent, device, root, mount point, options, optional fields, -, kind, source, super options
CLUSTER = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
24 22 0:22 / /dev rw,nosuid - devtmpfs devtmpfs rw
25 24 0:23 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw
26 22 0:24 / /run rw,nosuid,nodev - tmpfs tmpfs rw
27 26 0:25 / /run/user/1000 rw,nosuid,nodev - tmpfs tmpfs rw
28 22 0:26 / /home rw,relatime - nfs4 server:/home rw,vers=4.2
29 22 0:27 / /software ro,relatime - nfs4 server:/software rw
30 22 0:28 / /sealed rw,relatime - squashfs /dev/loop1 ro
31 22 0:29 / /mnt/my\\040disk rw,noexec - fuse.sshfs host: rw
32 22 0:30 / /auto rw - autofs systemd-1 rw
"""

FOLDERS = {
    "/": ["auto", "dev", "etc", "home", "mnt", "proc", "run", "sealed", "software", "tmp"],
    "/mnt": ["my disk", "other"],
    "/run": ["lock", "user"],
    "/run/user": ["1000"],
}


def layers(text: str, *wanted: str, folders: dict[str, list[str]] = FOLDERS) -> list[Layer]:
    return choose_layers(parse_mounts(text), lambda path: folders.get(path, []), wanted)


def test_every_writable_folder_once_and_none_with_a_mount_in_it() -> None:
    found = [layer.path for layer in layers(CLUSTER)]
    assert sorted(found) == ["/etc", "/home", "/mnt/my disk", "/mnt/other", "/run/lock", "/run/user/1000", "/tmp"]


def test_a_layer_knows_its_mount() -> None:
    options = {layer.path: layer.mount.options for layer in layers(CLUSTER)}
    assert "nosuid" in options["/run/lock"]
    assert "noexec" in options["/mnt/my disk"]
    assert "noexec" not in options["/mnt/other"]


def test_the_topmost_of_several_mounts_counts() -> None:
    covered = CLUSTER + "33 28 0:31 / /home ro - tmpfs tmpfs ro\n"
    assert "/home" not in [layer.path for layer in layers(covered)]


def test_what_is_wanted_comes_first_where_there_are_too_many() -> None:
    many = {"/": [f"folder{number:04}" for number in range(2 * MAX_LAYERS)]}
    root = "\n".join(CLUSTER.splitlines()[:2])
    found = [layer.path for layer in layers(root, "/folder0500/of/mine", folders=many)]
    assert len(found) == MAX_LAYERS
    assert found[0] == "/folder0500"
