//! What CONFIG SET accepts and answers: recorded from redis-server 7.0.15.

use super::Settings;

/// Sets parameters; the new values, or the error.
fn set(settings: &Settings, pairs: &[(&str, &str)]) -> String {
    let bytes = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    match settings.set(bytes) {
        Ok(()) => get(settings, &pairs.iter().map(|(name, _)| *name).collect::<Vec<_>>()),
        Err(error) => String::from_utf8_lossy(error.bytes()).into_owned(),
    }
}

fn get(settings: &Settings, patterns: &[&str]) -> String {
    let found = settings.matching(patterns.iter().map(|pattern| pattern.as_bytes()));
    let shown = found.iter().map(|(name, value)| format!("{}={value}", name.escape_ascii()));
    shown.collect::<Vec<_>>().join("|")
}

fn refused(name: &str, reason: &str) -> String {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")
}

#[test]
fn one_parameter() {
    let (bulk, limit) = ("proto-max-bulk-len", "client-output-buffer-limit");
    let rest = "slave 268435456 67108864 60 pubsub 33554432 8388608 60";
    let range = "argument must be between 1048576 and 9223372036854775807 inclusive";
    let words = "Wrong number of arguments in buffer limit configuration.";
    let class = "Invalid client class specified in buffer limit configuration.";
    let value = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
    for (name, text, expected) in [
        (bulk, "1mb", Ok("1048576")),
        (bulk, "2097152b", Ok("2097152")),
        (bulk, "10M", Ok("10000000")),
        (bulk, "2GB", Ok("2147483648")),
        (bulk, "1", Err(range)),
        (bulk, "", Err(range)),
        (bulk, "2K", Err(range)),
        (bulk, "9223372036854775808", Err(range)),
        (bulk, "18446744073709551616", Err(range)),
        (bulk, "99999999999gb", Err(range)),
        (bulk, "-1", Err("argument must be a memory value")),
        (bulk, "+1048576", Err("argument must be a memory value")),
        (bulk, "1048576 ", Err("argument must be a memory value")),
        (bulk, "1tb", Err("argument must be a memory value")),
        ("save", "10 1", Ok("10 1")),
        ("save", "10 1 20 0", Ok("10 1 20 0")),
        ("save", "+3600 01", Ok("3600 1")),
        ("save", "", Ok("")),
        ("save", "1", Err("Invalid save parameters")),
        ("save", "0 1", Err("Invalid save parameters")),
        ("save", "1 -1", Err("Invalid save parameters")),
        ("save", "a b", Err("Invalid save parameters")),
        ("save", "1  2", Err("Invalid save parameters")),
        (limit, "", Ok("normal 0 0 0")),
        (limit, "normal 0 b 0", Ok("normal 0 0 0")),
        (limit, "NORMAL 1kb 1k 7 normal 1 2 3", Ok("normal 1 2 3")),
        (limit, "normal 18446744073709551616 0 1", Ok("normal 18446744073709551615 0 1")),
        (limit, "normal 0 0", Err(words)),
        (limit, "normal  1k  0  1", Err(words)),
        (limit, "master 1 1 1", Err(class)),
        (limit, "normal a 0 0", Err(value)),
        (limit, "normal 1kk 0 0", Err(value)),
        (limit, "normal -1 0 0", Err(value)),
        (limit, "normal 0 0 -3", Err(value)),
        (limit, "normal 0 0 1k", Err(value)),
        (limit, "normal 0 0 2147483648", Err(value)),
        ("port", "1", Err("can't set immutable config")),
        ("dir", "/", Err("can't set protected config")),
    ] {
        let expected = match expected {
            Ok(text) if name == limit => format!("{name}={text} {rest}"),
            Ok(text) => format!("{name}={text}"),
            Err(reason) => refused(name, reason),
        };
        assert_eq!(set(&Settings::default(), &[(name, text)]), expected, "{name} {text:?}");
    }
}

#[test]
fn several_parameters_change_together_or_not_at_all() {
    let settings = Settings::default();
    let (bulk, save) = ("proto-max-bulk-len", "save");
    assert_eq!(set(&settings, &[(bulk, "1mb"), (save, "1 1")]), format!("{bulk}=1048576|save=1 1"));
    assert_eq!(settings.bulk_bytes_max(), 1 << 20);
    let unknown = "ERR Unknown option or number of arguments for CONFIG SET - 'x'";
    assert_eq!(set(&settings, &[(bulk, "2mb"), ("x", "y"), ("z", "y")]), unknown);
    assert_eq!(
        set(&settings, &[("PORT", "1"), ("x", "y")]),
        refused("PORT", "can't set immutable config")
    );
    assert_eq!(
        set(&settings, &[(bulk, "2mb"), ("Proto-max-bulk-len", "3mb")]),
        refused("Proto-max-bulk-len", "duplicate parameter")
    );
    assert_eq!(
        set(&settings, &[(bulk, "2mb"), ("SAVE", "a")]),
        refused(save, "Invalid save parameters")
    );
    assert_eq!(get(&settings, &[bulk, save]), format!("{bulk}=1048576|save=1 1"));
    assert_eq!(settings.bulk_bytes_max(), 1 << 20);
}

#[test]
fn output_limits_are_mirrored() {
    let settings = Settings::default();
    set(&settings, &[("client-output-buffer-limit", "replica 5 5 5 normal 1mb 2 3")]);
    let limit = settings.output_limit();
    assert_eq!((limit.hard_bytes, limit.soft_bytes, limit.soft_seconds), (1 << 20, 2, 3));
    assert!(get(&settings, &["client-*"]).ends_with("slave 5 5 5 pubsub 33554432 8388608 60"));
}

#[test]
fn patterns() {
    let settings = Settings::default();
    assert_eq!(get(&settings, &["nosuch", ""]), "");
    assert_eq!(get(&settings, &["PORT", "port", "p?rt"]), "PORT=6379");
    assert_eq!(get(&settings, &["P?rt", "PORT", "DATA*"]), "port=6379|databases=16");
    assert_eq!(get(&settings, &["*"]).split('|').count(), super::ROWS.len());
}

#[test]
fn the_defaults_are_mirrored() {
    assert_eq!(Settings::default().bulk_bytes_max(), 512 << 20);
}

#[test]
fn the_command_line_sets_what_config_set_refuses() {
    let settings = Settings::new([("port", "7000"), ("save", "")]).expect("they exist");
    assert_eq!(get(&settings, &["port", "save"]), "port=7000|save=");
    for (name, value) in
        [("port", "70000"), ("nosuch", "1"), ("appendonly", "yes"), ("maxmemory", "1gb")]
    {
        assert!(Settings::new([(name, value)]).is_err(), "{name} {value}");
    }
}
