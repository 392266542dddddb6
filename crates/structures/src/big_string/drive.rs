//! Drives a [`BigString`] and a `Vec<u8>` with the same operations, for tests and fuzzing.

use super::{BigString, CHUNK_BYTES, ChunkBuffer};

/// Longest string that a run may reach through gaps; the model stores every byte.
const LEN_MAX: usize = 400 * CHUNK_BYTES;
/// Snapshots that are kept at the same time.
const SNAPSHOTS_MAX: usize = 4;

/// Reads operations from `input` until it ends, applies them to a [`BigString`] and to a model,
/// and compares.
///
/// # Panics
/// If the two differ, a snapshot changed, or an invariant is broken.
pub fn drive(input: &[u8]) {
    let mut input = Input(input);
    let mut string = BigString::new();
    let mut model = Vec::new();
    let mut snapshots: Vec<(BigString, Vec<u8>)> = Vec::new();
    while let Some(operation) = input.byte() {
        match operation % 8 {
            0 | 1 => {
                let bytes = input.bytes(model.len());
                string.append(&bytes);
                model.extend_from_slice(&bytes);
            }
            2 => {
                let bytes = input.bytes(operation as usize);
                let offset = input.offset(LEN_MAX);
                string.write_at(offset as u64, &bytes);
                write_model(&mut model, offset, &bytes);
            }
            3 => {
                let bytes = input.bytes(operation as usize);
                let offset = input.offset(model.len());
                string.write_at(offset as u64, &bytes);
                write_model(&mut model, offset, &bytes);
            }
            4 => push_chunks(&mut string, &mut model, &input.bytes(7)),
            5 => {
                let len = input.offset(LEN_MAX);
                string.extend_with_zeros(len as u64);
                model.resize(model.len().max(len), 0);
            }
            6 => {
                if snapshots.len() == SNAPSHOTS_MAX {
                    release(snapshots.remove(operation as usize % SNAPSHOTS_MAX), operation);
                }
                snapshots.push((string.clone(), model.clone()));
            }
            _ => {
                compare_part(&string, &model, input.offset(LEN_MAX), input.offset(CHUNK_BYTES * 3))
            }
        }
        assert_eq!(string.len(), model.len() as u64);
    }
    compare(&string, &model);
    for snapshot in snapshots {
        release(snapshot, 64);
    }
    compare(&string, &model);
    release((string, model), 3);
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number from 0 to `limit`, often a multiple of the chunk size or next to one.
    fn offset(&mut self, limit: usize) -> usize {
        let high = self.byte().unwrap_or(0) as usize;
        let low = self.byte().unwrap_or(0) as usize;
        let offset = match low % 4 {
            0 => high * CHUNK_BYTES,
            1 => (high * CHUNK_BYTES + low / 64).saturating_sub(2),
            2 => high * 17 + low,
            _ => high * 16411 + low * 61,
        };
        offset % (limit + 1)
    }

    /// Bytes of an arbitrary length up to three chunks, not zeros, different from call to call.
    fn bytes(&mut self, salt: usize) -> Vec<u8> {
        let len = self.offset(CHUNK_BYTES * 3);
        (0..len).map(|index| (index * 7 + salt * 13 + len) as u8 | 1).collect()
    }
}

fn write_model(model: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    model.resize(model.len().max(offset + bytes.len()), 0);
    model[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn push_chunks(string: &mut BigString, model: &mut Vec<u8>, mut bytes: &[u8]) {
    model.extend_from_slice(bytes);
    while !bytes.is_empty() {
        let mut chunk = ChunkBuffer::new();
        let count = chunk.fill(bytes);
        bytes = &bytes[count..];
        assert_eq!(chunk.is_full(), count == CHUNK_BYTES);
        string.push_chunk(chunk);
    }
}

fn compare_part(string: &BigString, model: &[u8], offset: usize, len: usize) {
    let mut part = vec![0xAA; len];
    let count = string.copy_range(offset as u64, &mut part);
    let expected = model.get(offset..).unwrap_or(&[]);
    let expected = &expected[..expected.len().min(len)];
    assert_eq!(&part[..count], expected);
    assert!(string.equals_at(offset as u64, expected));
    if let Some(byte) = part[..count].last_mut() {
        *byte ^= 1;
        assert!(!string.equals_at(offset as u64, &part[..count]));
    }
}

fn compare(string: &BigString, model: &[u8]) {
    string.check_invariants();
    assert_eq!(string.len(), model.len() as u64);
    assert!(string.equals(model));
    let mut offset = 0;
    while offset < model.len() {
        let chunk = string.chunk_at(offset as u64);
        assert_eq!(chunk.len(), (CHUNK_BYTES - offset % CHUNK_BYTES).min(model.len() - offset));
        assert_eq!(chunk, &model[offset..offset + chunk.len()]);
        offset += chunk.len();
    }
    assert!(string.chunk_at(offset as u64).is_empty());
}

/// Compares a snapshot one last time and frees it in steps.
fn release((mut string, model): (BigString, Vec<u8>), budget: u8) {
    compare(&string, &model);
    let mut steps = 1;
    let weight = string.weight();
    while !string.drop_step(budget as usize) {
        steps += 1;
        assert!(steps <= weight + 1, "each step frees something");
    }
    assert!(string.is_empty());
}
