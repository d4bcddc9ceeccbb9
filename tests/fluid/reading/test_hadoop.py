"""Files of Hadoop by its command: a script that works on a local folder stands in for `hadoop`."""

from pathlib import Path

import pytest

from fleet.file_systems import BDFS
from fleet.hdfs import HDFSClient
from fluid.contrib.utils import hdfs_utils
from fluid.reading import hadoop

FAKE = r"""#!/bin/sh
root=$(dirname "$0")/../root
echo "$@" >> "$root/../calls"
shift
while [ "${1#-D}" != "$1" ]; do shift; done
what=$1
shift
case $what in
  -test) test "$1" "$root$2" ;;
  -ls | -lsr)
    depth=1
    [ $what = -lsr ] && depth=9
    echo "Found some items"
    find "$root$1" -mindepth 1 -maxdepth $depth | sort | while read -r path; do
      mode=-rw-r--r-- day=2
      [ -d "$path" ] && mode=drwxr-xr-x day=1
      [ "${path%/b.txt}" != "$path" ] && day=3
      echo "$mode - user group 1 2020-01-0$day 10:00 ${path#"$root"}"
    done
    ;;
  -mkdir) if [ "$1" = -p ]; then mkdir -p "$root$2"; else mkdir "$root$1"; fi ;;
  -cat) cat "$root$1" ;;
  -put) cp -r "$1" "$root$2" ;;
  -get) cp -r "$root$1" "$2" ;;
  -mv) mv "$root$1" "$root$2" ;;
  -rm) rm "$root$1" ;;
  -rmr) rm -r "$root$1" ;;
esac
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A `hadoop_home`, whose files are in `root`, and where this machine's are in `local`."""
    monkeypatch.setattr(hadoop, "RETRY_SECONDS", 0.0)
    for name in ("bin", "root/data", "local/deep"):
        (tmp_path / name).mkdir(parents=True)
    script = tmp_path / "bin" / "hadoop"
    script.write_text(FAKE)
    script.chmod(0o755)
    (tmp_path / "root/data/a.txt").write_text("one\n")
    (tmp_path / "local/b.txt").write_text("b")
    (tmp_path / "local/deep/c.txt").write_text("four")
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def test_hdfs_client_of_fleets(home: Path) -> None:
    client = HDFSClient("$HADOOP_HOME", {"fs.default.name": "hdfs://x", "hadoop.job.ugi": "u,p"})
    assert client.ls("/data") == ["/data/a.txt"] and client.ls("/none") == []
    assert client.cat("/data/a.txt") == "one" and client.cat("/data") == ""
    assert client.is_dir("/data") and client.is_file("/data/a.txt")
    assert client.makedirs("/x/y") is True and client.makedirs("/x/y") is None
    client.upload("/x/y", str(home / "local"), multi_processes=2)
    assert client.lsr("/x", excludes=["/x/y/b.txt"]) == ["/x/y/deep/c.txt"]
    assert client.upload_dir("/x", str(home / "local"), overwrite=True)
    assert client.is_exist("/x/local/deep/c.txt")
    got = client.download("/data", str(home / "got"), overwrite=True)
    assert got == [str(home / "got/a.txt")]
    assert client.rename("/data/a.txt", "/data/z.txt")
    assert not client.rename("/data/z.txt", "/x/y/b.txt")
    assert client.delete("/x") and client.delete("/x") and not client.is_exist("/x")
    first = (home / "calls").read_text().splitlines()[0]
    assert first == "fs -Dfs.default.name=hdfs://x -Dhadoop.job.ugi=u,p -test -e /data"


def test_hdfs_client_of_contrib(home: Path) -> None:
    client = hdfs_utils.HDFSClient(str(home), {})
    assert client.upload("/new", str(home / "local/b.txt"))
    assert not client.upload("/new", str(home / "local/b.txt"), retry_times=0)
    assert client.upload("/new", str(home / "local/b.txt"), overwrite=True)
    assert not client.upload("/new", str(home / "local"))
    assert client.download("/new/b.txt", str(home / "got"))
    assert not client.download("/new/b.txt", str(home / "got"))
    hdfs_utils.multi_upload(client, "/all", str(home / "local"), multi_processes=2)
    assert client.lsr("/all", only_file=False) == ["/all/deep", "/all/deep/c.txt", "/all/b.txt"]
    down = hdfs_utils.multi_download(client, "/all", str(home / "share"), 0, 2)
    assert down == [str(home / "share/deep/c.txt")] and Path(down[0]).read_text() == "four"


def test_bdfs(home: Path) -> None:
    system = BDFS("hdfs://x", "u,p")
    system.mkdir("/data/sub")
    assert system.list_dirs("/data") == ["sub"] and system.ls_dir("/data") == ["sub", "a.txt"]
    system.upload(str(home / "local"), "/data/sub")
    system.download("/data/sub", str(home))
    assert (home / "sub/local/deep/c.txt").exists()
    system.mv("/data/a.txt", "/data/b.txt")
    for path in ("/data/b.txt", "/data/sub", "/data/none"):
        system.delete(path)
    assert system.ls_dir("/data") == [] and system.need_upload_download()


def test_a_missing_hadoop_fails(tmp_path: Path) -> None:
    client = HDFSClient(str(tmp_path), {})
    assert not client.is_exist("/data") and client.ls("/data") == []
