"""The Spark judge's operations on locks: Hudi's own lock providers, and the services they ask, inside the judge's JVM.

``zookeeper`` and ``metastore`` start a server on a free port of the loopback address; ``lock`` and ``unlock`` let a provider
of Hudi, which stays under a name of the caller's choice, take the lock and give it back.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Request = dict[str, Any]
Answer = dict[str, Any]
_kept: dict[str, Any] = {}
SECONDS_TO_START = 60.0


def zookeeper(spark: SparkSession, request: Request) -> Answer:
    """A ZooKeeper server; `tick_ms` bounds its sessions (2 to 20 ticks)."""
    jvm = spark._jvm
    folder = jvm.java.io.File(tempfile.mkdtemp(prefix="zookeeper-"))
    server = jvm.org.apache.zookeeper.server.ZooKeeperServer(folder, folder, request["tick_ms"])
    address = jvm.java.net.InetSocketAddress("127.0.0.1", 0)
    factory = jvm.org.apache.zookeeper.server.NIOServerCnxnFactory()
    factory.configure(address, 60)
    factory.startup(server)
    _kept["zookeeper"] = factory
    return {"port": factory.getLocalPort()}


def metastore(spark: SparkSession, request: Request) -> Answer:
    """A Hive metastore over Derby in memory."""
    jvm = spark._jvm
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    folder = Path(tempfile.mkdtemp(prefix="metastore-"))
    for key, value in {
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:locks;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder),
        "hive.txn.timeout": request["timeout"],
        "hive.in.test": "true",
    }.items():
        conf.set(key, value)
    utilities = jvm.org.apache.hadoop.hive.metastore.txn.TxnDbUtil
    utilities.setConfValues(conf)
    utilities.prepDb(conf)
    conf.set("hive.in.test", "false")  # a tested metastore refuses the requests that Hudi sends
    bridge = jvm.org.apache.hadoop.hive.shims.ShimLoader.getHadoopThriftAuthBridge()
    serve = jvm.org.apache.hadoop.hive.metastore.HiveMetaStore.startMetaStore
    threading.Thread(target=serve, args=(port, bridge, conf), daemon=True).start()
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.1)
        else:
            return {"port": port}
    return {"error": "no metastore", "message": "it does not listen", "causes": []}


def lock(spark: SparkSession, request: Request) -> Answer:
    """Whether a new provider of class `provider` gets the lock within `wait_ms`; it is kept as `name`."""
    jvm = spark._jvm
    properties = jvm.org.apache.hudi.common.config.TypedProperties()
    for key, value in request["settings"].items():
        properties.setProperty(key, value)
    told = jvm.org.apache.hudi.common.config.LockConfiguration(properties)
    # The providers' constructors take the words of Hudi's storage, whatever Hadoop's settings are.
    conf = jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(False)
    provider = jvm
    for part in request["provider"].split("."):
        provider = getattr(provider, part)
    made = provider(told, conf)
    try:
        held = made.tryLock(request.get("wait_ms", 1000), jvm.java.util.concurrent.TimeUnit.MILLISECONDS)
    except Exception as error:
        thrown = getattr(error, "java_exception", None)
        if thrown is None or not thrown.getClass().getName().endswith("HoodieLockException"):
            raise
        return {"held": False, "why": str(thrown.getMessage())}
    if held:
        _kept[request["name"]] = made
    return {"held": bool(held)}


def unlock(spark: SparkSession, request: Request) -> Answer:
    """The kept provider gives the lock back."""
    _kept.pop(request["name"]).unlock()
    return {}


def stop(spark: SparkSession, request: Request) -> Answer:
    """End the ZooKeeper server."""
    _kept.pop("zookeeper").shutdown()
    return {}


OPERATIONS = {
    "zookeeper": zookeeper,
    "metastore": metastore,
    "lock": lock,
    "unlock": unlock,
    "stop_zookeeper": stop,
}
