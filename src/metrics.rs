//! placeholder until the store branch lands
#[derive(Clone, Debug, Default)]
pub struct Metrics;
impl Metrics {
    pub fn cache_hit(&self) {}
    pub fn cache_miss(&self) {}
    pub fn cache_evicted(&self) {}
    pub fn chunk_decoded(&self) {}
    pub fn inflight(&self, _d: i64) {}
}
