//! The feature caches of a definition's hooks.
//!
//! Invariant: a cache is locked while a run builds, and by nothing else: planning only reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::plan::Plan;
use super::{CacheReport, KnownReport, Pipeline, PipelineError, StageReport};
use crate::cache::{CacheReader, Caches};
use crate::shard::CommitPolicy;
use crate::transforms::{Kept, Transform};

/// A hook that keeps its answers.
type Keeping<'a> = (&'a str, &'a Arc<dyn Transform>, Kept);

impl Pipeline {
    /// The hooks that keep their answers, with their names and where.
    fn keeping(
        &self,
        columns: &SchemaRef,
        files: &BTreeMap<String, String>,
    ) -> Result<Vec<Keeping<'_>>, PipelineError> {
        let mut found = Vec::new();
        let mut columns = Arc::clone(columns);
        for (name, transform) in self.named_transforms() {
            let refused = |e| self.refused_columns(name, e);
            if let Some(kept) = transform.kept(&columns, files).map_err(refused)? {
                found.push((name, transform, kept));
            }
            columns = transform.output(&columns).map_err(refused)?;
        }
        Ok(found)
    }

    /// Opens the feature caches that hooks keep their answers in, if anything `is_built`. The hooks are
    /// given these columns, and name these files.
    pub(super) fn open_caches(
        &self,
        columns: &SchemaRef,
        files: &BTreeMap<String, String>,
        is_built: bool,
    ) -> Result<Arc<Caches>, PipelineError> {
        // What a run that was dropped left open would stand in the way of this one.
        self.end_transforms()?;
        let run = &self.definition.run;
        let commits = CommitPolicy { bytes: run.commit_bytes, interval: Some(run.commit_interval) };
        let caches = Arc::new(Caches::new(Arc::clone(&self.storage), commits));
        if !is_built {
            return Ok(caches);
        }
        for (_, transform, Kept { dir, signature, columns }) in self.keeping(columns, files)? {
            let section = caches.section(&dir, &signature)?;
            section.accepts(&columns)?;
            transform.remember(section);
        }
        Ok(caches)
    }

    /// What feature caches hold for the hooks.
    ///
    /// # Errors
    /// What [`Pipeline::open_caches`] would refuse of a run, but for another writer, who may end before.
    pub(super) fn known(&self, plan: &Plan) -> Result<Vec<KnownReport>, PipelineError> {
        let are_used = !plan.partitions.iter().all(super::plan::Planned::is_done);
        let mut known = Vec::new();
        for (name, _, kept) in self.keeping(&plan.columns, &plan.files)? {
            let reader = CacheReader::new(Arc::clone(&self.storage), &kept.dir);
            if are_used {
                self.storage.check_writable(&kept.dir)?;
                reader.section(&kept.signature)?.accepts(&kept.columns)?;
            }
            known.push(KnownReport {
                stage: name.to_owned(),
                cache: kept.dir.display().to_string(),
                section: kept.signature.sha256().to_owned(),
                rows: reader.section(&kept.signature)?.stat()?.rows,
            });
        }
        Ok(known)
    }

    /// Adds what feature caches spared to what stages report.
    pub(super) fn add_known(&self, stages: &mut [StageReport]) {
        for (name, transform) in self.named_transforms() {
            let Some(asked) = transform.asked() else { continue };
            let Some(stage) = stages.iter_mut().find(|stage| stage.name == name) else { continue };
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let hit_rate = (asked.rows > 0).then(|| asked.known as f64 / asked.rows as f64);
            stage.cache = Some(CacheReport { rows: asked.rows, known: asked.known, hit_rate });
        }
    }
}
