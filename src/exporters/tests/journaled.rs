//! What the journal says of uploads that were cut off, and what becomes of them.

use super::cut_off::kill_at;
use super::*;
use crate::shard::log;

/// The journal of a push that was killed when all parts of a file were there.
fn cut(trial: &Trial) -> Journal {
    assert!(kill_at(trial, |_, request| request.what == "complete", false).0);
    open(trial)
}

fn open(trial: &Trial) -> Journal {
    let storage: Arc<dyn Storage> = Arc::new(trial.memory.after_kill());
    Journal::open(&storage, &trial.fake.home(), "s3://bucket/a b").unwrap()
}

#[test]
fn a_part_is_noted_with_the_digest_of_all_bytes_up_to_its_end() {
    let trial = Trial::new();
    let journal = cut(&trial);
    let mut n_later = 0;
    for (object, _) in journal.facts().uploads() {
        let bytes = trial.memory.read(&trial.fake.home().dir().join(object)).unwrap().unwrap();
        let Some(Known::Begun(begun)) = journal.facts().known(object) else { panic!("{object}") };
        for (number, part) in &begun.parts {
            let end = usize::try_from((number + 1) * begun.part_bytes).unwrap().min(bytes.len());
            assert_eq!(part.b3, blake3::hash(&bytes[..end]), "{object} {number}");
            n_later += u64::from(*number > 0);
        }
    }
    assert!(n_later > 0);
}

#[test]
fn a_journal_of_another_version_is_begun_anew() {
    let mut trial = Trial::new();
    assert_ne!(*cut(&trial).facts(), Facts::default());
    trial.memory = trial.memory.after_kill();
    let folder = trial.fake.home().pushes();
    let names = trial.memory.list(&folder).unwrap().unwrap();
    let path = folder.join(&names.iter().find(|it| it.name.contains(".jsonl")).unwrap().name);
    let text = String::from_utf8(trial.memory.read(&path).unwrap().unwrap()).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(first).unwrap();
    let fields = header.as_object_mut().unwrap();
    fields.remove("crc32");
    assert_eq!(fields.insert("version".to_owned(), 1.into()), Some(2.into()));
    trial.memory.remove_file(&path).unwrap();
    let mut file = trial.memory.create(&path).unwrap();
    file.append(&[&log::line(&header), rest.as_bytes()].concat()).unwrap();
    file.sync().unwrap();
    drop(file);

    assert_eq!(*open(&trial).facts(), Facts::default());
    trial.push().unwrap();
    assert_eq!(trial.found(), trial.wanted());
}
