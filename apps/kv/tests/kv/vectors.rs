//! Sets of vectors: their commands, their errors, and searches that are compared with a plain exact
//! search.

use crate::client::{Client, encode};
use crate::compare::Redis;
use crate::program::serve;

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn array(words: &[&str]) -> String {
    format!("*{}\r\n{}", words.len(), words.iter().map(|word| bulk(word)).collect::<String>())
}

#[test]
fn commands_on_vectors_are_answered_as_redis_answers_them() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let invalid = "-ERR invalid vector specification\r\n";
    for (words, answer) in [
        ("VSIM v VALUES 2 1 0", "*0\r\n"),
        ("VCARD v", ":0\r\n"),
        ("VDIM v", "-ERR key does not exist\r\n"),
        ("VREM v east", ":0\r\n"),
        ("VEMB v east", "$-1\r\n"),
        ("VADD v VALUES 2 1 0 east", ":1\r\n"),
        ("VADD v VALUES 2 1 1 east", ":0\r\n"),
        ("vadd v values 2 3 0 east cas noquant ef 100 m 16", ":0\r\n"),
        ("VADD v VALUES 2 0 1e0 north", ":1\r\n"),
        ("VADD v VALUES 2 -.5 0 west", ":1\r\n"),
        ("VCARD v", ":3\r\n"),
        ("VDIM v", ":2\r\n"),
        ("VEMB v east", &array(&["3", "0"])),
        ("VEMB v west", &array(&["-0.5", "0"])),
        ("VEMB v no", "$-1\r\n"),
        ("VSIM v ELE east", &array(&["east", "north", "west"])),
        ("VSIM v ELE east WITHSCORES COUNT 2", &array(&["east", "1", "north", "0.5"])),
        (
            "VSIM v VALUES 2 0 5 WITHSCORES TRUTH NOTHREAD EF 10",
            &array(&["north", "1", "east", "0.5", "west", "0.5"]),
        ),
        ("VSIM v VALUES 2 0 0 WITHSCORES COUNT 1", &array(&["east", "0.5"])),
        ("VSIM v ELE east EPSILON 0.5", &array(&["east", "north"])),
        ("VSIM v ELE no", "-ERR element not found in set\r\n"),
        ("VSIM v VALUES 3 1 0 0", "-ERR Vector dimension mismatch - got 3 but set has 2\r\n"),
        ("VADD v VALUES 3 1 0 0 x", "-ERR Vector dimension mismatch - got 3 but set has 2\r\n"),
        ("VADD v VALUES 2 1 0 x FP16", "-ERR asked quantization mismatch with existing vector set\r\n"),
        ("VADD v VALUES 2 1 x y", invalid),
        ("VADD v VALUES 2 1 nan y", invalid),
        ("VADD v VALUES 2 1 inf y", invalid),
        ("VADD v VALUES 0 x y", invalid),
        ("VADD v VALUES -1 1 y", invalid),
        ("VADD v VALUES 99999999 1 0 y", invalid),
        ("VADD v FP32 12345 y", invalid),
        ("VADD v FP64 12345678 y", invalid),
        ("VSIM v NOSUCH x", invalid),
        ("VADD v VALUES 2 1 0", "-ERR wrong number of arguments for 'vadd' command\r\n"),
        ("VADD v VALUES 1", "-ERR wrong number of arguments for 'vadd' command\r\n"),
        ("VSIM v ELE", "-ERR wrong number of arguments for 'vsim' command\r\n"),
        ("VADD v VALUES 2 1 0 x NOSUCH", "-ERR invalid option after element\r\n"),
        ("VADD v VALUES 2 1 0 x EF 0", "-ERR invalid EF\r\n"),
        (
            "VADD v VALUES 2 1 0 x Q8",
            "-ERR Q8 and BIN are not supported: vectors are kept as NOQUANT or FP16\r\n",
        ),
        ("VSIM v ELE east COUNT 0", "-ERR invalid COUNT\r\n"),
        ("VSIM v ELE east COUNT 1025", "-ERR COUNT is limited to 1024\r\n"),
        ("VSIM v ELE east COUNT", "-ERR syntax error in VSIM command\r\n"),
        ("VSIM v ELE east EPSILON 0", "-ERR invalid EPSILON\r\n"),
        ("GET v", wrong),
        ("APPEND v x", wrong),
        ("INCR v", wrong),
        ("STRLEN v", wrong),
        ("MGET v", "*1\r\n$-1\r\n"),
        ("EXISTS v", ":1\r\n"),
        ("EXPIRE v 100", ":1\r\n"),
        ("TTL v", ":100\r\n"),
        ("SET string x", "+OK\r\n"),
        ("VADD string VALUES 2 1 0 x", wrong),
        ("VSIM string VALUES 2 1 0", wrong),
        ("VCARD string", wrong),
        ("VDIM string", wrong),
        ("VREM string x", wrong),
        ("VEMB string x", wrong),
        ("VREM v east", ":1\r\n"),
        ("VSIM v VALUES 2 1 0", &array(&["north", "west"])),
        ("VREM v north", ":1\r\n"),
        ("VREM v west", ":1\r\n"),
        ("EXISTS v", ":0\r\n"),
        ("VADD v VALUES 3 1 0 0 x", ":1\r\n"),
        ("SET v now-a-string", "+OK\r\n"),
        ("GET v", "$12\r\nnow-a-string\r\n"),
        ("DEL v string", ":2\r\n"),
        ("DBSIZE", ":0\r\n"),
    ] {
        assert_eq!(client.say(words), answer, "{words}");
    }
    assert!(client.say("INFO").contains("used_memory:0\r\n"), "all memory is back");
    let long = vec![b'n'; 1025];
    assert_eq!(client.ask(&[b"VADD", b"v", b"VALUES", b"1", b"1", &long]), "-ERR element is too long\r\n");
}

/// Numbers without a pattern.
fn numbers(seed: u64, dim: usize) -> Vec<f32> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..dim)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 48) as f32) / 32768.0 - 1.0
        })
        .collect()
}

fn blob(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn score(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    0.5 + 0.5 * dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Searches, and compares the scores with those of a plain search; names may differ where scores
/// are nearly the same.
fn check(client: &mut Client, key: &[u8], all: &[Vec<f32>], query: &[f32], count: usize, tolerance: f64) {
    let count_text = count.to_string();
    let answer =
        client.ask(&[b"VSIM", key, b"FP32", &blob(query), b"WITHSCORES", b"COUNT", count_text.as_bytes()]);
    let words: Vec<_> = answer.lines().skip(1).skip(1).step_by(2).collect();
    let mut expected: Vec<f64> = all.iter().map(|vector| score(vector, query)).collect();
    let own = expected.clone();
    expected.sort_by(|a, b| b.total_cmp(a));
    expected.truncate(count);
    assert_eq!(words.len(), 2 * expected.len(), "{answer}");
    let mut names = std::collections::HashSet::new();
    for (pair, expected) in words.chunks(2).zip(expected) {
        let (name, found): (usize, f64) = (pair[0][1..].parse().unwrap(), pair[1].parse().unwrap());
        assert!((found - expected).abs() <= tolerance, "{found} and {expected}");
        assert!((own[name] - found).abs() <= tolerance && names.insert(name), "{name}: {found}");
    }
}

#[test]
fn searches_find_what_a_plain_search_finds() {
    for args in [&["--blocks", "1"][..], &["--blocks", "3"], &["--blocks", "2", "--threads", "3"]] {
        let server = serve(args);
        let mut client = Client::connect(server.addr);
        let mut count = 0;
        for (dim, options, tolerance) in
            [(3, &[][..], 1e-6), (50, &[&b"FP16"[..]], 3e-3), (8, &[&b"NOQUANT"[..]], 1e-6)]
        {
            let key = format!("set:{dim}");
            let all: Vec<_> = (0..3000).map(|seed| numbers(seed, dim)).collect();
            for (number, vector) in all.iter().enumerate() {
                let (vector, name) = (blob(vector), format!("v{number}"));
                client.send(&encode(
                    &[&[b"VADD", key.as_bytes(), b"FP32", &vector, name.as_bytes()][..], options].concat(),
                ));
                count += 1;
                if count == 50 {
                    (0..count).for_each(|_| assert_eq!(client.answer(), ":1\r\n"));
                    count = 0;
                }
            }
            for (seed, wanted) in [(9000, 1), (9001, 10), (9002, 300), (9003, 1024)] {
                check(&mut client, key.as_bytes(), &all, &numbers(seed, dim), wanted, tolerance);
            }
        }
    }
}

#[test]
fn clients_search_while_others_add_and_remove() {
    let server = serve(&["--blocks", "3"]);
    let addr = server.addr;
    let mut client = Client::connect(addr);
    for number in 0..2500u64 {
        client.send(&encode(&[
            b"VADD",
            b"set",
            b"FP32",
            &blob(&numbers(number, 16)),
            format!("v{number}").as_bytes(),
        ]));
    }
    (0..2500).for_each(|_| assert_eq!(client.answer(), ":1\r\n"));
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                for number in 0..300u64 {
                    let name = format!("w{writer}:{}", number % 5);
                    let vector = blob(&numbers(10_000 + number, 16));
                    let added = client.ask(&[b"VADD", b"set", b"FP32", &vector, name.as_bytes()]);
                    assert!(added == ":1\r\n" || added == ":0\r\n", "{added}");
                    if number % 2 == 0 {
                        assert_eq!(client.ask(&[b"VREM", b"set", name.as_bytes()]), ":1\r\n");
                    }
                    // Another set that comes and goes.
                    assert_eq!(client.ask(&[b"VADD", name.as_bytes(), b"FP32", &vector, b"x"]), ":1\r\n");
                    assert_eq!(client.say(&format!("DEL {name}")), ":1\r\n");
                }
            });
        }
        for reader in 0..4u64 {
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                for round in 0..60u64 {
                    let number = (reader * 600 + round * 7) % 2500;
                    let answer =
                        client.ask(&[b"VSIM", b"set", b"FP32", &blob(&numbers(number, 16)), b"COUNT", b"3"]);
                    assert!(
                        answer.starts_with(&format!("*3\r\n{}", bulk(&format!("v{number}")))),
                        "{number}: {answer}"
                    );
                }
                // Leaves in the middle of an answer.
                client.send(&encode(&[b"VSIM", b"set", b"ELE", b"v7", b"COUNT", b"1024", b"WITHSCORES"]));
            });
        }
    });
    assert_eq!(client.say("FLUSHALL"), "+OK\r\n");
    assert_eq!(client.say("VSIM set VALUES 1 1"), "*0\r\n");
    while !client.say("INFO").contains("used_memory:0\r\n") {
        // The clients that left are still being noticed.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn vectors_of_any_size_are_taken_or_refused() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    for dim in [1, 7, 8, 1536, 32_768] {
        let key = format!("set:{dim}");
        assert_eq!(client.ask(&[b"VADD", key.as_bytes(), b"FP32", &blob(&numbers(1, dim)), b"a"]), ":1\r\n");
        let texts: Vec<_> = numbers(1, dim).iter().map(|number| format!("{number}")).collect();
        let dim_text = dim.to_string();
        let mut words: Vec<&[u8]> = vec![b"VSIM", key.as_bytes(), b"VALUES", dim_text.as_bytes()];
        words.extend(texts.iter().map(|text| text.as_bytes()));
        words.push(b"WITHSCORES");
        let answer = client.ask(&words);
        let score: f64 = answer.lines().last().unwrap().parse().unwrap();
        assert!((score - 1.0).abs() < 1e-6, "{dim}: {answer}");
        let back = client.ask(&[b"VEMB", key.as_bytes(), b"a"]);
        let back: Vec<f32> = back.lines().skip(2).step_by(2).map(|number| number.parse().unwrap()).collect();
        assert_eq!(back.len(), dim);
        for (back, number) in back.iter().zip(numbers(1, dim)) {
            assert!((back - number).abs() < 1e-4, "{back} {number}");
        }
    }
    let too_long = blob(&numbers(1, 32_769));
    assert_eq!(
        client.ask(&[b"VADD", b"k", b"FP32", &too_long, b"a"]),
        "-ERR invalid vector specification\r\n"
    );
    assert_eq!(client.ask(&[b"VADD", b"k", b"FP32", b"", b"a"]), "-ERR invalid vector specification\r\n");
    // Memory is bounded, and what was taken stays.
    let mut count = 0;
    loop {
        let name = format!("v{count}");
        match &*client.ask(&[b"VADD", b"full", b"FP32", &blob(&numbers(count, 512)), name.as_bytes()]) {
            ":1\r\n" => count += 1,
            answer => {
                assert!(answer.starts_with("-OOM "), "{answer}");
                break;
            }
        }
    }
    assert!(count > 500, "{count}");
    assert_eq!(client.say("VCARD full"), format!(":{count}\r\n"));
    assert_eq!(client.say("VSIM set:1 VALUES 1 1"), array(&["a"]));
}

#[test]
fn redis_server_answers_the_same_if_it_has_vector_sets() {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = Client::connect(redis.addr);
    if theirs.say("VCARD v").contains("unknown command") {
        crate::not_run("this redis-server has no vector sets");
        return;
    }
    let server = serve(&[]);
    let mut ours = Client::connect(server.addr);
    for words in [
        "VADD v VALUES 2 1 0 east NOQUANT",
        "VADD v VALUES 2 0 1 north NOQUANT",
        "VSIM v ELE east",
        "VSIM v ELE no",
        "VADD v VALUES 3 1 0 0 x NOQUANT",
        "VADD v VALUES 2 1 0",
        "VCARD v",
        "VDIM v",
        "GET v",
        "VREM v east",
        "VREM v east",
    ] {
        assert_eq!(ours.say(words), theirs.say(words), "{words}");
    }
}
