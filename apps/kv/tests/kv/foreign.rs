//! Clients that are not gpunet's: redis-cli, redis-benchmark, redis-py.

use crate::process::{Output, finish};
use crate::program::{serve, stop};
use std::process::{Command, Stdio};

/// Runs a foreign client to its end, if the machine has it.
fn foreign(program: &str, args: &[&str]) -> Option<Output> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    match child {
        Ok(child) => Some(finish(child)),
        Err(_) => {
            crate::not_run(&format!("{program} is not installed"));
            None
        }
    }
}

#[test]
fn redis_cli_sets_and_gets() {
    let server = serve(&[]);
    let port = server.addr.port().to_string();
    let cli = |args: &[&str]| foreign("redis-cli", &[&["-p", &port], args].concat()).map(|output| output.out);
    let Some(set) = cli(&["SET", "greeting", "hello world"]) else { return };
    assert_eq!(set, "OK\n");
    assert_eq!(cli(&["GET", "greeting"]).unwrap(), "hello world\n");
    assert_eq!(cli(&["--no-raw", "MGET", "greeting", "no"]).unwrap(), "1) \"hello world\"\n2) (nil)\n");
    assert_eq!(cli(&["VADD", "places", "VALUES", "2", "1", "0", "east"]).unwrap(), "1\n");
    assert_eq!(cli(&["VADD", "places", "VALUES", "2", "0", "1", "north"]).unwrap(), "1\n");
    assert_eq!(cli(&["VSIM", "places", "ELE", "east", "WITHSCORES"]).unwrap(), "east\n1\nnorth\n0.5\n");
    assert!(cli(&["INFO"]).unwrap().contains("server_name:gpunet-kv"));
}

#[test]
fn redis_benchmark_finds_no_error() {
    let server = serve(&["--blocks", "2"]);
    let port = server.addr.port().to_string();
    let args = ["-p", &port, "-q", "-n", "3000", "-c", "50", "-P", "4", "-r", "500", "-d", "100"];
    let tests = ["-t", "ping,set,get,incr,mset"];
    let Some(output) = foreign("redis-benchmark", &[&args[..], &tests].concat()) else { return };
    let text = output.out + &output.err;
    assert!(output.status.success() && !text.contains("rror"), "{text}");
    assert_eq!(text.matches("requests per second").count(), 6, "{text}");
    stop(server);
}

const PYTHON: &str = r#"
import struct, sys, threading
try:
    import redis
except ImportError:
    print("NOT RUN: the Python package redis is not installed")
    sys.exit(0)
if "protocol" in sys.argv[2] and int(redis.__version__.split(".")[0]) < 5:
    print("NOT RUN: redis-py", redis.__version__, "has no choice of protocols")
    sys.exit(0)
r = redis.Redis(port=int(sys.argv[1]), **eval(sys.argv[2]))
assert r.ping()
assert r.set("key", b"\x00\xff" * 1000, ex=100) and r.get("key") == b"\x00\xff" * 1000
assert 98 <= r.ttl("key") <= 100
assert r.mset({"a": 1, "b": 2}) and r.mget("a", "no", "b") == [b"1", None, b"2"]
assert r.incr("a") == 2 and r.append("b", "xyz") == 4 and r.strlen("b") == 4
assert r.set("a", 1, nx=True) is None and r.delete("a", "b") == 2 and r.exists("key") == 1
with r.pipeline(transaction=False) as pipe:
    for number in range(1000):
        pipe.incr("count")
    assert pipe.execute() == list(range(1, 1001))
with r.pipeline() as pipe:
    pipe.set("number", 1).incr("number").get("nothing").mget("number", "nothing")
    assert pipe.execute() == [True, 2, None, [b"2", None]] and r.delete("number") == 1
assert r.incrbyfloat("number", 1.5) == 1.5 and r.randomkey() in (b"key", b"count", b"number") and r.delete("number") == 1
assert r.client_info()["db"] in ("0", b"0", 0) and r.command_count() == len(r.command())
assert "summary" in str(r.execute_command("COMMAND DOCS", "get"))
# A pool, its connections in threads, and one whose connection is gone.
pool = redis.ConnectionPool(port=int(sys.argv[1]), max_connections=10, **eval(sys.argv[2]))
def ask(number):
    client = redis.Redis(connection_pool=pool)
    for more in range(20):
        assert client.set(f"pool {number}", more) and int(client.get(f"pool {number}")) == more
threads = [threading.Thread(target=ask, args=[number]) for number in range(10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(r.scan_iter("pool *", count=3)) == sorted(r.keys("pool *")) == [b"pool %d" % number for number in range(10)]
assert r.delete(*r.keys("pool *")) == 10
r.connection_pool.disconnect()
assert r.ping()
other = redis.Redis(port=int(sys.argv[1]), db=3, client_name="me", username="default", password="any", **eval(sys.argv[2]))
assert other.get("key") is None and other.set("key", 3) and other.dbsize() == 1 and other.client_getname() in ("me", b"me")
assert r.info("keyspace")["db3"]["keys"] == 1 and other.flushdb() and other.dbsize() == 0
if hasattr(r, "vset"):
    vectors = r.vset()
    assert vectors.vadd("places", [1.0, 0.5], "lakeside") == 1
    assert vectors.vadd("places", struct.pack("<2f", -1, 0), "harbour") == 1
    assert vectors.vcard("places") == 2 and vectors.vdim("places") == 2
    found = vectors.vsim("places", "lakeside", with_scores=True)
    assert [str(name).strip("b'") for name in found] == ["lakeside", "harbour"], found
    assert abs(list(found.values())[0] - 1) < 1e-6, found
    assert [round(number, 5) for number in vectors.vemb("places", "lakeside")] == [1.0, 0.5]
    assert vectors.vrem("places", "harbour") == 1 and vectors.vrem("places", "lakeside") == 1
else:
    print("NOT RUN: this redis-py has no vector sets")
try:
    r.execute_command("NOSUCH", "x")
    raise SystemExit("an unknown command was taken")
except redis.ResponseError as error:
    assert "unknown command" in str(error), error
assert r.info()["maxmemory"] == 16777216 and r.dbsize() == 2
assert r.flushall() and r.dbsize() == 0
print("redis-py", redis.__version__, "is content")
"#;

#[test]
fn redis_py_is_content() {
    // With its defaults, and with either protocol.
    for options in ["{}", "{'protocol': 2}", "{'protocol': 3}"] {
        let server = serve(&[]);
        let args = ["-c", PYTHON, &server.addr.port().to_string(), options];
        let Some(output) = foreign("python3", &args) else { return };
        is_content(&output);
    }
}

fn is_content(output: &Output) {
    for why in output.out.lines().filter_map(|line| line.strip_prefix("NOT RUN: ")) {
        crate::not_run(why);
    }
    assert!(output.status.success(), "{}{}", output.out, output.err);
    print!("{}", output.out);
    assert!(output.out.contains("is content") || output.out.contains("NOT RUN"), "{}", output.out);
}

const NODE: &str = r#"
const port = Number(process.argv[1]), assert = require("assert");
async function redis() {
  let redis;
  try { redis = require("redis") } catch { return console.log("NOT RUN: the Node package redis is not installed") }
  const client = redis.createClient({ url: `redis://localhost:${port}/2`, name: "me" });
  await client.connect();
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.set("key", "value"), "OK");
  assert.equal(await client.get("key"), "value");
  assert.equal(await client.get("nothing"), null);
  assert.equal(await client.clientGetName(), "me");
  assert.deepEqual(await client.multi().set("n", 1).incr("n").get("nothing").exec(), ["OK", 2, null]);
  const many = await Promise.all(Array.from({ length: 10000 }, () => client.incr("count")));
  assert.equal(many[9999], 10000);
  await client.flushDb();
  await (client.close ? client.close() : client.quit());
  console.log("node-redis", require("redis/package.json").version, "is content");
}
async function ioredis() {
  let Redis;
  try { Redis = require("ioredis") } catch { return console.log("NOT RUN: the Node package ioredis is not installed") }
  const client = new Redis(port, "localhost", { db: 1 });
  assert.equal(await client.set("key", "value"), "OK");
  assert.equal(await client.get("key"), "value");
  assert.deepEqual(await client.multi().set("n", 1).incr("n").exec(), [[null, "OK"], [null, 2]]);
  await client.quit();
  console.log("ioredis", require("ioredis/package.json").version, "is content");
}
redis().then(ioredis).catch(error => { console.error(error); process.exit(1) });
"#;

/// The packages are found by `NODE_PATH`.
#[test]
fn clients_of_node_are_content() {
    let server = serve(&[]);
    let Some(output) = foreign("node", &["-e", NODE, &server.addr.port().to_string()]) else { return };
    is_content(&output);
}
