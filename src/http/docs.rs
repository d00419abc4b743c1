//! The OpenAPI document, and a page that shows it.
//!
//! The page is Swagger UI, compiled in by its crate. The invariant: it loads nothing from elsewhere, so that it works
//! offline and tells no one who reads it; its Content-Security-Policy holds it to that.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value;
use utoipa_swagger_ui::{Config, SwaggerFile};

/// The document as it is written and reviewed.
const YAML: &str = include_str!("../../openapi/w4dx.yaml");

/// What the page needs of Swagger UI. The rest of it (source bundles, an OAuth callback) is not served.
const FILES: &[&str] = &[
    "favicon-16x16.png",
    "favicon-32x32.png",
    "index.css",
    "swagger-initializer.js",
    "swagger-ui-bundle.js",
    "swagger-ui-standalone-preset.js",
    "swagger-ui.css",
];

/// Swagger UI styles elements in place and draws its icons from data URLs; all else comes from here.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

static DOCUMENT: LazyLock<Arc<Value>> = LazyLock::new(|| {
    // Compiled in, and read by a test of this module.
    Arc::new(yaml_serde::from_str(YAML).expect("openapi/w4dx.yaml is YAML that JSON can hold"))
});

static JSON: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(DOCUMENT.to_string()));

static CONFIG: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    // Relative, so that the page also works below a path prefix of a proxy. Without "none" for the validator,
    // Swagger UI sends the document's address to a public service.
    let config = Config::from("../openapi.json").use_base_layout().validator_url("none").doc_expansion("list");
    Arc::new(config.default_models_expand_depth(0).display_request_duration(true))
});

/// The OpenAPI document, converted from YAML once.
pub fn document() -> Arc<Value> {
    Arc::clone(&DOCUMENT)
}

/// The routes `/-/openapi.json`, `/-/docs` and what lies beneath it. Unknown files are left to the fallback.
pub fn router() -> Router {
    let router = Router::new()
        .route("/-/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], JSON.clone())))
        // The page names its files relative to its own folder. A relative redirect survives a proxy's path prefix.
        .route("/-/docs", get(async || Redirect::permanent("docs/")))
        .route("/-/docs/", get(async || serve("index.html")));
    FILES.iter().fold(router, |router, file| {
        // In OpenAPI: "/-/docs/{file}".
        router.route(&format!("/-/docs/{file}"), get(async || serve(file)))
    })
}

/// A file of Swagger UI, with the headers that keep it to itself.
fn serve(file: &str) -> Response {
    let Ok(Some(SwaggerFile { bytes, content_type, .. })) = utoipa_swagger_ui::serve(file, Arc::clone(&CONFIG)) else {
        // `FILES` and the crate's version belong together: a test asks for each of them.
        return StatusCode::NOT_FOUND.into_response();
    };
    let body = match bytes {
        std::borrow::Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        std::borrow::Cow::Owned(bytes) => Bytes::from(bytes),
    };
    let headers: [(HeaderName, HeaderValue); 5] = [
        (
            CONTENT_TYPE,
            HeaderValue::try_from(content_type).unwrap_or(HeaderValue::from_static("application/octet-stream")),
        ),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{HeaderMap, Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::model::ErrorKind;

    async fn fetch(path: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = router().oneshot(request).await.expect("infallible");
        let (parts, body) = answer.into_parts();
        (parts.status, parts.headers, body.collect().await.expect("a body").to_bytes().to_vec())
    }

    /// The values of `src` and `href` in a page.
    fn references(html: &str) -> Vec<&str> {
        let after = ["src=\"", "href=\""].into_iter().flat_map(|name| html.split(name).skip(1));
        after.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[tokio::test]
    async fn the_page_and_all_that_it_loads_are_served_from_here() {
        let (status, headers, page) = fetch("/-/docs/").await;
        assert_eq!(status, StatusCode::OK);
        assert!(headers[CONTENT_TYPE].to_str().expect("ASCII").starts_with("text/html"));
        let page = String::from_utf8(page).expect("UTF-8");
        let references = references(&page);
        assert!(references.len() >= 5, "{references:?}");
        for reference in references {
            assert!(!reference.contains("//") && !reference.starts_with('/'), "{reference}");
            let (status, ..) = fetch(&format!("/-/docs/{}", reference.trim_start_matches("./"))).await;
            assert_eq!(status, StatusCode::OK, "{reference}");
        }
    }

    #[tokio::test]
    async fn the_page_reads_the_document_beside_it_and_asks_no_one_else() {
        let (_, _, script) = fetch("/-/docs/swagger-initializer.js").await;
        let script = String::from_utf8(script).expect("UTF-8");
        assert!(script.contains("\"url\": \"../openapi.json\""), "{script}");
        assert!(script.contains("\"validatorUrl\": \"none\""), "{script}");
        assert!(!script.contains("//") || !script.contains("http"), "{script}");
    }

    #[tokio::test]
    async fn every_file_is_there_and_kept_to_itself() {
        for file in FILES {
            let (status, headers, body) = fetch(&format!("/-/docs/{file}")).await;
            assert_eq!((status, body.is_empty()), (StatusCode::OK, false), "{file}");
            assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
            let policy = headers[CONTENT_SECURITY_POLICY].to_str().expect("ASCII");
            assert!(policy.starts_with("default-src 'none'") && !policy.contains("http"), "{policy}");
        }
        assert_eq!(fetch("/-/docs/swagger-ui-es-bundle.js").await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn the_short_address_leads_to_the_page() {
        let (status, headers, _) = fetch("/-/docs").await;
        assert_eq!(
            (status, &headers["location"]),
            (StatusCode::PERMANENT_REDIRECT, &HeaderValue::from_static("docs/"))
        );
    }

    #[tokio::test]
    async fn the_document_is_served_as_json() {
        let (status, headers, body) = fetch("/-/openapi.json").await;
        assert_eq!((status, &headers[CONTENT_TYPE]), (StatusCode::OK, &HeaderValue::from_static("application/json")));
        assert_eq!(serde_json::from_slice::<Value>(&body).expect("JSON"), *document());
    }

    #[test]
    fn the_document_is_of_this_version() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn the_document_lists_every_error_code_in_order() {
        let codes: Vec<&str> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(document()["components"]["schemas"]["ErrorCode"]["enum"], serde_json::json!(codes));
    }
}
