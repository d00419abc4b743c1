use std::str::FromStr;

use super::*;
use crate::metrics::Metrics;
use crate::store::{Bucket, Buckets, ListRequest, PutOptions};

fn error(text: &str) -> String {
    let message = Config::from_str(text).expect_err(text).to_string();
    assert!(!message.contains('\n'), "more than one line: {message}");
    message
}

#[test]
fn an_empty_file_is_a_configuration() {
    let config = Config::from_str("").unwrap();
    assert_eq!(config.server, ServerConfig::default());
    assert_eq!(config.limits, Limits::default());
    assert!(config.stores.is_empty() && config.buckets.is_empty() && config.keys.is_empty());
}

#[test]
fn every_table_is_read() {
    let config = Config::from_str(
        r#"
        [server]
        listen = ["127.0.0.1:0", "[::1]:9000"]
        admin_listen = "127.0.0.1:9100"
        request_timeout = "2m"
        drain_timeout = "5s"
        log = "json"
        dataset_metrics = 20

        [stores.disk]
        kind = "local"
        path = "data"
        default = true

        [stores.aws]
        kind = "s3"
        bucket = "climate"
        endpoint = "http://127.0.0.1:8333"
        access_key = "AK"
        secret_key_env = "SK"

        [buckets.vault]
        store = "aws"
        prefix = "era5"
        freshness = "immutable"
        anonymous = "read"
        writable = true
        in_key_form = false

        [[keys]]
        access_key = "trainer"
        secret_key = "hunter2"
        read = ["vault", "other-bucket"]
        write = ["vault/runs"]

        [limits]
        result_bytes = "512MiB"
        cache_bytes = 1048576
        upstream_timeout = "10s"
        "#,
    )
    .unwrap();
    assert_eq!(config.server.listen, ["127.0.0.1:0", "[::1]:9000"]);
    assert_eq!(config.server.request_timeout, Duration::from_secs(120));
    assert_eq!(config.server.log, LogFormat::Json);
    assert_eq!(config.server.dataset_metrics, 20);
    assert!(config.metrics().tells_datasets() && !Config::default().metrics().tells_datasets());
    assert!(config.stores["disk"].default);
    let vault = &config.buckets["vault"];
    assert_eq!((vault.prefix.as_str(), vault.freshness), ("era5/", Some(Freshness::Immutable)));
    assert!(vault.writable && !vault.in_key_form);
    assert_eq!(config.keys[0].write, ["vault/runs"]);
    assert_eq!((config.limits.result_bytes, config.limits.cache_bytes), (512 << 20, 1 << 20));
    assert_eq!(config.limits.upstream_timeout, Duration::from_secs(10));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_wrong_key_is_answered_with_its_line_and_the_nearest_one() {
    assert_eq!(error("\n[server]\nlisen = \"x\"\n"), "w4dx.toml:3: unknown key `lisen`; did you mean `listen`?");
    assert_eq!(error("[sever]\n"), "w4dx.toml:1: unknown key `sever`; did you mean `server`?");
    assert_eq!(
        error("[stores.a]\nkind = \"memory\"\n[buckets.abc]\nstore = \"a\"\nfreshnes = \"1s\"\n"),
        "w4dx.toml:5: unknown key `freshnes`; did you mean `freshness`?"
    );
    assert_eq!(
        error("[limits]\n\nresult_byte = 1\n"),
        "w4dx.toml:3: unknown key `result_byte`; did you mean `result_bytes`?"
    );
    assert_eq!(
        error("[stores.a]\nkind = \"loca\"\npath = \"x\"\n"),
        "w4dx.toml:2: unknown value `loca`; did you mean `local`?"
    );
    assert!(error("[server]\nzzz = 1\n").contains("known are `listen`, `admin_listen`"));
}

#[test]
fn what_contradicts_itself_is_named() {
    for (text, words) in [
        ("[stores.a]\nkind = \"local\"\n", "store `a`: a store of kind `local` needs `path`"),
        ("[stores.a]\nkind = \"local\"\npath = \"x\"\nbucket = \"b\"\n", "a store of kind `local` has no `bucket`"),
        ("[stores.a]\nkind = \"s3\"\nbucket = \"b\"\naccess_key = \"x\"\n", "without a secret key"),
        (
            "[stores.disk]\nkind = \"memory\"\n[buckets.abc]\nstore = \"dsk\"\n",
            "4: bucket `abc`: no store `dsk`; did you mean `disk`?",
        ),
        ("[stores.a]\nkind = \"memory\"\n[buckets.AB]\nstore = \"a\"\n", "3 to 63 characters"),
        ("[stores.a]\nkind = \"memory\"\n[buckets.abc]\nstore = \"a\"\nprefix = \"../x\"\n", "not a relative path"),
        (
            "[stores.a]\nkind = \"memory\"\ndefault = true\n[stores.b]\nkind = \"memory\"\ndefault = true\n",
            "both stores",
        ),
        ("[[keys]]\naccess_key = \"k\"\n", "needs `secret_key`"),
        ("[[keys]]\naccess_key = \"k\"\nsecret_key = \"s\"\nsecret_key_env = \"E\"\n", "only one of"),
        ("[[keys]]\naccess_key = \"k\"\nsecret_key = \"s\"\nread = [\"nope\"]\n", "no bucket `nope`"),
        (
            "[[keys]]\naccess_key = \"k\"\nsecret_key = \"s\"\n[[keys]]\naccess_key = \"k\"\nsecret_key = \"t\"\n",
            "given twice",
        ),
        ("[limits]\nresult_bytes = \"many\"\n", "2: `many` is not a size"),
        ("[limits]\nresult_bytes = -1\n", "not negative"),
        ("[limits]\ngap_bytes = \"none\"\n", "2: `none` is neither a size such as `128KiB` nor `auto`"),
        ("[limits]\ngap_bytes = -1\n", "not negative"),
        ("[server]\nrequest_timeout = \"soon\"\n", "2: `soon` is not a duration"),
        ("[server]\nlisten = []\n", "empty list"),
        ("[server\n", "w4dx.toml:1:"),
    ] {
        let message = error(text);
        assert!(message.contains(words), "{text}\n→ {message}");
        assert!(!message.contains("secret_key = "), "{message}");
    }
}

#[test]
fn the_environment_overrides_and_gives_secrets() {
    let mut config =
        Config::from_str("[stores.a]\nkind = \"s3\"\nbucket = \"b\"\naccess_key = \"AK\"\nsecret_key_env = \"SK\"\n")
            .unwrap();
    let unset = config.clone().apply_environment(&|_| None).unwrap_err();
    assert_eq!(unset.to_string(), "no secret in environment variable `SK`, which is not set");
    let variables =
        [("SK", "s3cret\n"), ("W4DX_LISTEN", "a:1, b:2"), ("W4DX_ACCESS_KEY", "me"), ("W4DX_SECRET_KEY", "it")];
    let lookup = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    config.apply_environment(&lookup).unwrap();
    assert_eq!(config.server.listen, ["a:1", "b:2"]);
    assert_eq!((config.keys[0].access_key.as_str(), &config.keys[0].read[..]), ("me", &["*".to_owned()][..]));
    let Backend::S3 { credentials: Some((_, secret)), .. } = &config.stores["a"].backend else { panic!("no S3 store") };
    assert_eq!(secret.secret().unwrap().expose(), "s3cret");
    let half = |name: &str| (name == "W4DX_ACCESS_KEY").then(|| "me".to_owned());
    assert!(Config::default().apply_environment(&half).unwrap_err().to_string().contains("W4DX_SECRET_KEY"));
}

#[test]
fn the_gap_is_measured_unless_it_is_fixed() {
    for (text, expected) in [
        ("", None),
        ("gap_bytes = \"auto\"", None),
        ("gap_bytes = \"1MiB\"", Some(1 << 20)),
        ("gap_bytes = 0", Some(0)),
    ] {
        let config = Config::from_str(&format!("[limits]\n{text}\n")).unwrap();
        assert_eq!(config.limits.gap_bytes, expected, "{text}");
        assert_eq!(config.gateway_settings().fetch.gap_bytes, expected, "{text}");
    }
}

#[tokio::test]
async fn a_missing_folder_is_one_clear_line() {
    let config = Config::from_str("[stores.disk]\nkind = \"local\"\npath = \"/nonexistent/w4dx\"\n").unwrap();
    let message = config.build_buckets(&Metrics::new()).await.unwrap_err().to_string();
    assert_eq!(message, "store `disk`: folder `/nonexistent/w4dx` does not exist");
}

#[tokio::test]
async fn relative_folders_are_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("data/vault")).unwrap();
    std::fs::write(folder.path().join("data/vault/k"), b"x").unwrap();
    let file = folder.path().join("w4dx.toml");
    let text =
        "[stores.disk]\nkind = \"local\"\npath = \"data\"\n[buckets.abc]\nstore = \"disk\"\nprefix = \"vault\"\n";
    std::fs::write(&file, text).unwrap();
    let buckets = Config::load(&file).unwrap().build_buckets(&Metrics::new()).await.unwrap();
    let bucket = buckets.get("abc").unwrap();
    assert_eq!(bucket.freshness, Freshness::For(Duration::ZERO));
    assert_eq!(bucket.store.head("k").await.unwrap().size, 1);
    assert!(Config::load(&folder.path().join("none.toml")).unwrap_err().to_string().contains("none.toml: "));
}

async fn keys_of(bucket: &Bucket) -> Vec<String> {
    let request = ListRequest { max_keys: 10, ..ListRequest::default() };
    bucket.store.list(&request).await.unwrap().objects.into_iter().map(|(key, _)| key).collect()
}

async fn put(buckets: &Buckets, bucket: &str, key: &str) {
    let body = Box::pin(futures::stream::iter([Ok("x".into())]));
    buckets.resolve(bucket).unwrap().store.put(key, body, PutOptions::default()).await.unwrap();
}

#[tokio::test]
async fn unlisted_buckets_lie_in_the_default_store_and_apart() {
    let config = Config::from_str(
        "[stores.mem]\nkind = \"memory\"\ndefault = true\n[buckets.listed]\nstore = \"mem\"\nprefix = \"listed\"\n",
    )
    .unwrap();
    let buckets = config.build_buckets(&Metrics::new()).await.unwrap();
    for (bucket, key) in [("one", "a"), ("two", "b"), ("listed", "c")] {
        put(&buckets, bucket, key).await;
    }
    assert_eq!(keys_of(&buckets.resolve("one").unwrap()).await, ["a"]);
    assert_eq!(keys_of(&buckets.resolve("two").unwrap()).await, ["b"]);
    assert_eq!(buckets.discover(10).await.unwrap(), ["one", "two"]);
    assert_eq!(buckets.discover(1).await.unwrap(), ["one"]);
    assert!(buckets.get("one").is_none());
    let store_names = ["one", "two", "listed"].map(|name| buckets.resolve(name).unwrap().store_name);
    assert_eq!(store_names, ["mem".into(), "mem".into(), "mem".into()], "one store, whatever its buckets are called");
    for name in ["..", "a", "A-B", "one/two", ""] {
        assert!(buckets.resolve(name).is_none(), "{name}");
    }
    let one = buckets.resolve("one").unwrap();
    assert!(one.store.head("../two/b").await.is_err());
    assert!(one.store.head("x/../../two/b").await.is_err());
}
