//! `w4dx serve`: a configuration file's buckets.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use super::logging::{self, LogArguments, LogFormat};
use super::say;
use crate::auth::{Key, Policy};
use crate::config::Config;
use crate::http::Gateway;
use crate::server::{Server, ServerSettings, signalled};

/// Arguments of `serve`. Flags and environment go before the file.
#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// The configuration file
    #[arg(long, env = "W4DX_CONFIG", default_value = "w4dx.toml")]
    config: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, env = "W4DX_LISTEN")]
    listen: Option<SocketAddr>,
    /// Address for metrics, health and readiness
    #[arg(long, env = "W4DX_ADMIN_LISTEN")]
    admin_listen: Option<SocketAddr>,
    /// One more access key, which may do everything; needs --secret-key
    #[arg(long, env = "W4DX_ACCESS_KEY", requires = "secret_key")]
    access_key: Option<String>,
    /// The secret of --access-key
    #[arg(long, env = "W4DX_SECRET_KEY", requires = "access_key", hide_env_values = true)]
    secret_key: Option<String>,
    /// End with an error when a store does not answer at the start
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    log: LogArguments,
}

pub(super) async fn run(arguments: ServeArguments) -> anyhow::Result<()> {
    let mut config = Config::load(&arguments.config)?;
    config.apply_environment(&|name| std::env::var(name).ok())?;
    logging::start(&arguments.log, arguments.log.log_format.unwrap_or_else(|| log_format(&config)))?;
    let metrics = config.metrics();
    let buckets = config.build_buckets(&metrics).await?;
    let mut keys = config.access_keys()?;
    if let (Some(access_key), Some(secret_key)) = (arguments.access_key, arguments.secret_key) {
        keys.push(Key::full(access_key, secret_key));
    }
    let mut settings = config.server_settings()?;
    if let Some(listen) = arguments.listen {
        settings.listen = vec![listen];
    }
    settings.admin_listen = arguments.admin_listen.or(settings.admin_listen);
    let gateway = Gateway::new(buckets, Policy::new(keys), metrics, &config.gateway_settings())?;
    if arguments.check {
        for bucket in gateway.buckets.iter() {
            let ready = bucket.store.ready().await;
            ready.with_context(|| format!("bucket `{}` is not ready", bucket.name))?;
        }
    }
    // An upstream may take its time to be unreachable: it must not hold up the others.
    let checked = Arc::clone(&gateway);
    serve(gateway, settings, move |_| {
        tokio::spawn(async move { warn_of_unready(&checked).await });
        Ok(())
    })
    .await
}

async fn warn_of_unready(gateway: &Gateway) {
    for bucket in gateway.buckets.iter() {
        if let Err(error) = bucket.store.ready().await {
            tracing::warn!(bucket = %bucket.name, %error, "bucket is not ready; /-/ready says so until it is");
            tracing::debug!(bucket = %bucket.name, cause = ?error, "why");
        }
    }
}

fn log_format(config: &Config) -> LogFormat {
    match config.server.log {
        crate::config::LogFormat::Human => LogFormat::Human,
        crate::config::LogFormat::Json => LogFormat::Json,
    }
}

/// Binds, says where, and serves until a signal and the drain after it. `ready` runs once the address is known.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    settings: ServerSettings,
    ready: impl FnOnce(SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let server = Server::bind(gateway, settings)?;
    for address in server.addresses() {
        say(&format!("listening on http://{address}"))?;
    }
    if let Some(admin) = server.admin_address() {
        say(&format!("admin on http://{admin}"))?;
    }
    if let Some(first) = server.addresses().first() {
        ready(*first)?;
    }
    server.run(signalled()).await.context("the server failed")
}
