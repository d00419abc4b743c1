//! `w4dx demo`: a bucket to try, written once, served at once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::logging::{self, LogArguments, LogFormat};
use super::{demo, say, serve};
use crate::auth::{Key, Policy};
use crate::http::{Gateway, GatewaySettings};
use crate::metrics::Metrics;
use crate::server::ServerSettings;
use crate::store::{AnonymousAccess, Bucket, Buckets, Freshness, LocalStore, MeteredStore};

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Folder that holds the demonstration bucket
    #[arg(long, default_value = "w4dx-demo")]
    data: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, env = "W4DX_LISTEN", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Access key for writes; made and printed when not given
    #[arg(long, env = "W4DX_ACCESS_KEY", requires = "secret_key")]
    access_key: Option<String>,
    /// The secret of --access-key
    #[arg(long, env = "W4DX_SECRET_KEY", requires = "access_key", hide_env_values = true)]
    secret_key: Option<String>,
    /// Write the bucket and end
    #[arg(long)]
    write_only: bool,
    #[command(flatten)]
    log: LogArguments,
}

pub(super) async fn run(arguments: DemoArguments) -> anyhow::Result<()> {
    logging::start(&arguments.log, arguments.log.log_format.unwrap_or(LogFormat::Human))?;
    let data = arguments.data.clone();
    let written = tokio::task::spawn_blocking(move || demo::ensure(&data, false)).await??;
    let folder = arguments.data.join("demo");
    if written {
        say(&format!("wrote the bucket `demo` as a plain folder: {}", folder.display()))?;
    }
    if arguments.write_only {
        return Ok(());
    }
    let made = arguments.access_key.is_none();
    let access_key = arguments.access_key.unwrap_or_else(|| format!("DEMO{:012X}", rand::random::<u64>() >> 16));
    let secret_key = arguments.secret_key.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let metrics = Metrics::new();
    let store = MeteredStore::new(Arc::new(LocalStore::open(folder)?), &metrics, "demo");
    let buckets = Buckets::new([Bucket {
        name: "demo".into(),
        store_name: "demo".into(),
        store: Arc::new(store),
        freshness: Freshness::For(std::time::Duration::ZERO),
        anonymous: AnonymousAccess::Read,
        writable: true,
        in_key_form: true,
    }]);
    let policy = Policy::new(vec![Key::full(access_key.clone(), secret_key.clone())]);
    let gateway = Gateway::new(buckets, policy, metrics, &GatewaySettings::default())?;
    let settings = ServerSettings { listen: vec![arguments.listen], ..ServerSettings::default() };
    serve::serve(gateway, settings, |address| {
        if made {
            say(&format!("key pair for writes, good until this process ends: {access_key} {secret_key}"))?;
        }
        say(&examples(&format!("http://{address}")))
    })
    .await
}

/// What to try, ready to be pasted.
fn examples(url: &str) -> String {
    format!(
        r#"
Try in another terminal:

  # What is in the set?
  curl '{url}/demo/clips.zarr?describe'

  # Clip 3, its first 16 frames, a 64 x 64 crop, as .npy
  curl -o crop.npy '{url}/demo/clips.zarr/video?slice=3,0:16,32:96,32:96,:'

  # One frame as a picture (or open the address in a browser)
  curl -o frame.png '{url}/demo/clips.zarr/video?slice=3,8&format=png'

  # What would be read for it, without reading?
  curl '{url}/demo/clips.zarr/video?slice=3,0:16,32:96,32:96,:&explain'

  # The same crop through an S3 client that knows nothing of slices
  aws --endpoint-url {url} --no-sign-request s3 cp 's3://demo/clips.zarr/video/@slice=3,0:16,32:96,32:96,:.npy' crop.npy

  # In Python
  python3 -c "import io, urllib.request, numpy; print(numpy.load(io.BytesIO(urllib.request.urlopen('{url}/demo/clips.zarr/audio?slice=3,:1600').read())).shape)"

Documentation: {url}/-/docs   Metrics: {url}/-/metrics   Stop: Ctrl-C
"#
    )
}
