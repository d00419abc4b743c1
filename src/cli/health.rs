//! `w4dx health`: whether a gateway answers, without another HTTP client at hand.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::say;

/// Arguments of `health`.
#[derive(Debug, Args)]
pub(super) struct HealthArguments {
    /// The gateway; plain HTTP
    #[arg(long, default_value = "http://127.0.0.1:9000")]
    url: url::Url,
    /// Ask whether its buckets answer too, not only whether it runs
    #[arg(long)]
    ready: bool,
}

pub(super) async fn run(arguments: HealthArguments) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let url = &arguments.url;
    ensure!(url.scheme() == "http", "--url {url}: only http is asked");
    let host = url.host_str().with_context(|| format!("--url {url} names no host"))?;
    let port = url.port_or_known_default().unwrap_or(80);
    let path = if arguments.ready { "/-/ready" } else { "/-/health" };
    let answer = tokio::time::timeout(PATIENCE, async {
        let mut stream = TcpStream::connect((host, port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(1 << 20).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    })
    .await
    .with_context(|| format!("{url} did not answer within {} s", PATIENCE.as_secs()))?
    .with_context(|| format!("{url} does not answer"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{url} does not speak HTTP"))?;
    let status = head.lines().next().unwrap_or_default().to_owned();
    ensure!(status.split(' ').nth(1) == Some("200"), "{url}{path} answered `{status}`: {}", body.trim());
    say(body.trim())
}
