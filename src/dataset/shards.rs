//! From a shard to the places of its chunks, level by level, reading only the pages of indexes on the way.

use std::ops::Range;
use std::sync::Arc;

use super::locate::Found;
use super::lookup::present;
use super::pages::{PagePlace, ShardName};
use super::{Array, DatasetError, Datasets, Snapshot};
use crate::cache::ObjectState;
use crate::format::{FormatError, GridStorage, IndexLocation};
use crate::index::{IndexError, IndexLayout, IndexPage, Nesting};
use crate::model::ByteRange;
use crate::plan::{Located, SurveyedChunk, coalesce};
use crate::store::{Fetched, StoreError};

/// Largest checksummed index read, in bytes: four million inner chunks. It is read whole, and held in memory while it
/// is in use. An index without checksum is read page by page and may have any size.
const INDEX_BYTES: u64 = 64 << 20;

/// Longest index, in bytes, that is read whole on the first contact with a shard, when a page would do. One read of
/// so much takes about as long as the HEAD that it saves, which would tell where a shard ends and its index begins:
/// a round trip of 10 to 50 ms, at some 50 MB/s. And all who meet the shard first ask for the same bytes, so that the
/// store is asked once.
const FIRST_READ_BYTES: u64 = 1 << 20;

/// Bytes of unchecked indexes of one shard that are held at once: 128 pages. A crop wants a handful; a selection that
/// touches a hundred thousand pages passes through them in batches, each read side by side.
const BATCH_BYTES: u64 = 8 << 20;

/// Bytes of indexes that one request may hold at once, over all of its shards, one page for each at least.
const HELD_BYTES: u64 = 512 << 20;

/// The shards of one array, seen by one request.
pub(super) struct Shards<'a> {
    datasets: &'a Datasets,
    array: &'a Array,
    snapshot: &'a Snapshot,
    layouts: Vec<Arc<IndexLayout>>,
}

/// A shard that exists.
struct Shard {
    name: ShardName,
    state: ObjectState,
    size: u64,
    /// What was read of it to find that out.
    given: Option<Arc<Fetched>>,
}

impl<'a> Shards<'a> {
    /// # Errors
    /// [`DatasetError::Format`] when the indexes are too large to be verified.
    pub(super) fn new(
        datasets: &'a Datasets,
        array: &'a Array,
        grid: &GridStorage,
        snapshot: &'a Snapshot,
    ) -> Result<Self, DatasetError> {
        let layouts: Vec<_> = Nesting::new(grid).layouts().into_iter().map(Arc::new).collect();
        let checked = layouts.iter().filter(|layout| layout.is_checked()).map(|layout| layout.index_bytes());
        if let Some(length) = checked.max().filter(|&length| length > INDEX_BYTES) {
            let feature = format!("a checksummed shard index of {length} bytes (the limit is {INDEX_BYTES})");
            return Err(DatasetError::Format { key: array.path.to_string(), source: FormatError::Feature { feature } });
        }
        Ok(Self { datasets, array, snapshot, layouts })
    }

    /// How many shards may be followed at once.
    pub(super) fn at_once(&self, most: usize) -> usize {
        let checked = self.layouts.iter().filter(|layout| layout.is_checked()).map(|layout| layout.index_bytes());
        let each = checked.max().unwrap_or(0).max(BATCH_BYTES);
        most.min((HELD_BYTES / each) as usize)
    }

    /// Where the chunks of the shard at `key` are, when that is known without asking the store.
    pub(super) fn at_hand(&self, key: &str, chunks: &[SurveyedChunk]) -> Option<Found> {
        let bucket = &self.array.bucket;
        let state = self.datasets.trusted(bucket, key, self.snapshot)?.state;
        let ObjectState::Present { version, size, .. } = &state else { return Some(Found::absent(chunks)) };
        let mut descent = Descent::new(chunks, *size);
        for layout in &self.layouts {
            // What is wrong with an index is for `find` to say.
            let places = descent.wanted(layout).ok()?;
            let pages = self.datasets.pages_at_hand(&bucket.name, key, version, &places)?;
            descent.follow(layout, &places, &pages).ok()?;
            descent.descend();
        }
        Some(Found { state: Some(state), located: descent.located, index_reads: 0 })
    }

    /// Where the chunks of the shard at `key` are. Reads what is needed of its indexes, once a level.
    ///
    /// # Errors
    /// The store's, and [`DatasetError::Index`] for an index that contradicts its shard.
    pub(super) async fn find(&self, key: &str, chunks: &[SurveyedChunk]) -> Result<Found, DatasetError> {
        let broken = |source| DatasetError::Index { key: key.to_owned(), source };
        let Some(shard) = self.shard(key, chunks).await? else { return Ok(Found::absent(chunks)) };
        let Shard { name, state, size, given } = shard;
        let mut reads = u64::from(given.is_some());
        let mut descent = Descent::new(chunks, size);
        for (level, layout) in self.layouts.iter().enumerate() {
            let mut places = descent.wanted(layout).map_err(broken)?;
            let given = given.as_ref().filter(|_| level == 0);
            if let Some(given) = given {
                // All that came is kept: whoever asks next, asks nearby.
                let index = layout.index_start(size).map_err(broken)?;
                let (from, to) = (given.start - index, given.start - index + given.bytes.len() as u64);
                places.extend(layout.pages_within(&(from..to)).map(|page| PagePlace::new(layout, index, page)));
                places.sort_unstable();
                places.dedup();
            }
            for places in batches(&places) {
                let (pages, read) = self.datasets.pages(&name, layout, places, given, self.snapshot).await?;
                reads += read;
                descent.follow(layout, places, &pages).map_err(broken)?;
            }
            descent.descend();
        }
        Ok(Found { state: Some(state), located: descent.located, index_reads: reads })
    }

    /// The shard in the version that this request goes by; `None` when there is none.
    async fn shard(&self, key: &str, chunks: &[SurveyedChunk]) -> Result<Option<Shard>, DatasetError> {
        let bucket = &self.array.bucket;
        let trusted = self.datasets.trusted(bucket, key, self.snapshot);
        let look = trusted.is_some() || bucket.store.is_local() || self.is_worth_a_look(key, chunks);
        let first_read = if look { None } else { self.first_read(chunks) };
        let (state, given) = match (trusted, first_read) {
            (Some(entry), _) => (entry.state, None),
            (None, None) => (self.datasets.state(bucket, key, self.snapshot).await?.state, None),
            (None, Some(range)) => match self.read_first(key, range).await? {
                Some(fetched) => (present(&fetched.info), Some(fetched)),
                None => return Ok(None),
            },
        };
        let ObjectState::Present { version, size, .. } = &state else { return Ok(None) };
        let name = ShardName { bucket: bucket.clone(), key: key.into(), version: version.clone() };
        Ok(Some(Shard { name, size: *size, state, given }))
    }

    /// Whether a HEAD may save a read, because all pages wanted are here for the version known last.
    fn is_worth_a_look(&self, key: &str, chunks: &[SurveyedChunk]) -> bool {
        let bucket = &self.array.bucket;
        match self.datasets.versions.get(&bucket.name, key).map(|entry| entry.state) {
            None => false,
            Some(ObjectState::Absent) => true,
            Some(ObjectState::Present { version, size, .. }) => {
                let places = Descent::new(chunks, size).wanted(&self.layouts[0]);
                places.is_ok_and(|places| self.datasets.pages_at_hand(&bucket.name, key, &version, &places).is_some())
            }
        }
    }

    /// The part of its index to read of a shard of which nothing is known, so that one request tells its version and
    /// its size too. `None` when its size must be known before.
    fn first_read(&self, chunks: &[SurveyedChunk]) -> Option<Range<u64>> {
        let layout = &self.layouts[0];
        let index = layout.index_bytes();
        if layout.is_checked() || index <= FIRST_READ_BYTES {
            return Some(0..index);
        }
        match layout.location() {
            IndexLocation::End => None,
            IndexLocation::Start => {
                let pages = chunks.iter().map(|chunk| layout.page_range(layout.page_of(layout.entry_of(&chunk.coord))));
                let mut pages: Vec<Range<u64>> = pages.collect();
                pages.dedup();
                coalesce(&pages, 0, FIRST_READ_BYTES).into_iter().next().map(|read| read.range)
            }
        }
    }

    /// Reads `range` of the index of a shard of which nothing is known; `None` when there is no shard.
    async fn read_first(&self, key: &str, range: Range<u64>) -> Result<Option<Arc<Fetched>>, DatasetError> {
        let (layout, expected) = (&self.layouts[0], range.end - range.start);
        let broken = |source| DatasetError::Index { key: key.to_owned(), source };
        let asked = match layout.location() {
            IndexLocation::Start => ByteRange::Bounded(range.clone()),
            IndexLocation::End => ByteRange::Suffix(expected),
        };
        let read = self.datasets.read(&self.array.bucket, key, asked, None, self.snapshot).await;
        let fetched = match read {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return Ok(None),
            Err(error) => {
                return Err(match *error {
                    // A shard without the first of these bytes is too small for its index.
                    StoreError::RangeNotSatisfiable { size: container, .. } => {
                        broken(IndexError::NoRoom { container, index: layout.index_bytes() })
                    }
                    _ => error.into(),
                });
            }
        };
        let index = layout.index_start(fetched.info.size).map_err(broken)?;
        let got = fetched.bytes.len() as u64;
        if got != expected || fetched.start != index + range.start {
            return Err(DatasetError::Short { key: key.to_owned(), got, expected });
        }
        Ok(Some(fetched))
    }
}

/// How far the chunks of one shard have been followed down.
struct Descent<'a> {
    chunks: &'a [SurveyedChunk],
    /// Per chunk, the bytes of the object that hold it: at first the whole shard.
    located: Vec<Located>,
    /// The same one level down, as far as it has been followed.
    below: Vec<Located>,
    /// Per chunk, its entry in the index of this level.
    entries: Vec<u64>,
}

impl<'a> Descent<'a> {
    fn new(chunks: &'a [SurveyedChunk], size: u64) -> Self {
        let located = vec![Located::Range(0..size); chunks.len()];
        let below = vec![Located::Absent; chunks.len()];
        Self { chunks, located, below, entries: Vec::with_capacity(chunks.len()) }
    }

    /// The pages that lead on, ascending, each once.
    fn wanted(&mut self, layout: &IndexLayout) -> Result<Vec<PagePlace>, IndexError> {
        let mut places: Vec<PagePlace> = Vec::new();
        self.entries.clear();
        for (chunk, located) in self.chunks.iter().zip(&self.located) {
            let entry = layout.entry_of(&chunk.coord);
            self.entries.push(entry);
            if let Located::Range(container) = located {
                let place = page_of(layout, container, entry)?;
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        }
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// Follows the chunks whose entries are in `pages`, which run parallel to `places`, ascending.
    fn follow(&mut self, layout: &IndexLayout, places: &[PagePlace], pages: &[IndexPage]) -> Result<(), IndexError> {
        // Chunks that follow each other are mostly in one page.
        let mut at = 0;
        for ((located, below), &entry) in self.located.iter().zip(&mut self.below).zip(&self.entries) {
            let Located::Range(container) = located else { continue };
            let place = page_of(layout, container, entry)?;
            if places.get(at) != Some(&place) {
                let Ok(found) = places.binary_search(&place) else { continue };
                at = found;
            }
            let inner = layout.find(&pages[at], entry, container.end - container.start)?;
            *below = match inner {
                Some(inner) => Located::Range(container.start + inner.start..container.start + inner.end),
                None => Located::Absent,
            };
        }
        Ok(())
    }

    /// Goes one level down, once every page wanted has been followed.
    fn descend(&mut self) {
        std::mem::swap(&mut self.located, &mut self.below);
        self.below.fill(Located::Absent);
    }
}

/// Parts of `places` whose pages are held in memory together: one after the other, where a request wants many.
fn batches(places: &[PagePlace]) -> impl Iterator<Item = &[PagePlace]> {
    let mut held = 0;
    places.chunk_by(move |_, next| {
        held += next.len_bytes();
        let fits = held <= BATCH_BYTES;
        if !fits {
            held = 0;
        }
        fits
    })
}

/// The page of the index of `container`, bytes of the object, that holds `entry`.
fn page_of(layout: &IndexLayout, container: &Range<u64>, entry: u64) -> Result<PagePlace, IndexError> {
    let index = container.start + layout.index_start(container.end - container.start)?;
    Ok(PagePlace::new(layout, index, layout.page_of(entry)))
}
