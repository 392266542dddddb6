"""The everyday use of redis-py, as a script: basics.py PORT PROTOCOL.

Prints "all as expected" at the end; an assertion that fails is the report.
"""

import sys

import redis


def main():
    port, protocol = int(sys.argv[1]), int(sys.argv[2])
    client = redis.Redis(port=port, protocol=protocol, decode_responses=True)
    client.flushall()
    strings(client)
    lists_and_sets(client)
    deadlines(client)
    transactions(client, port, protocol)
    iteration(client)
    assert client.info("server")["redis_version"]
    assert client.info("keyspace")["db0"]["keys"] == client.dbsize()
    print("all as expected")


def strings(client):
    assert client.set("k", "v") is True
    assert client.get("k") == "v"
    assert client.get("nokey") is None
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", get=True) == "v"
    assert client.mset({"a": 1, "b": "x" * 100_000}) is True
    assert client.mget("a", "nokey", "b") == ["1", None, "x" * 100_000]
    assert client.execute_command("INCR", "a") == 2
    assert client.append("k", "!") == 2
    assert client.setrange("k", 4, "z") == 5
    assert client.strlen("k") == 5
    assert client.delete("k", "nokey") == 1


def lists_and_sets(client):
    assert client.rpush("l", *range(1000)) == 1000
    assert client.lrange("l", 0, 2) == ["0", "1", "2"]
    assert client.rpop("l", 3) == ["999", "998", "997"]
    assert client.lpop("l") == "0"
    assert client.lindex("l", -1) == "996"
    assert client.ltrim("l", 0, 9) is True
    assert client.lrem("l", 0, "5") == 1
    assert client.llen("l") == 9
    assert client.sadd("s", "x", "y") == 2
    assert client.sadd("t", "y", "z") == 2
    assert client.sunionstore("u", "s", "t") == 3
    assert client.smembers("u") == {"x", "y", "z"}
    assert client.type("u") == "set"
    try:
        client.get("l")
        raise AssertionError("GET of a list is an error")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error


def deadlines(client):
    client.set("e", "v", ex=100)
    assert 98 <= client.ttl("e") <= 100
    assert client.expire("e", 200, gt=True) == 1
    assert client.pexpireat("e", 1) == 1
    assert client.get("e") is None


def transactions(client, port, protocol):
    with client.pipeline(transaction=True) as pipe:
        pipe.set("p", 1)
        pipe.rpush("q", "a")
        pipe.get("p")
        assert pipe.execute() == [True, 1, "1"]
    with client.pipeline(transaction=False) as pipe:
        for number in range(2000):
            pipe.set(f"many:{number}", number)
        assert all(pipe.execute())
    other = redis.Redis(port=port, protocol=protocol)
    with client.pipeline() as pipe:
        pipe.watch("p")
        other.set("p", 2)
        pipe.multi()
        pipe.set("p", 3)
        try:
            pipe.execute()
            raise AssertionError("the watched key changed")
        except redis.WatchError:
            pass
    assert client.get("p") == "2"


def iteration(client):
    found = list(client.scan_iter(match="many:*", count=100))
    assert len(found) == len(set(found)) == 2000
    assert len(client.keys("many:*")) == 2000


main()
