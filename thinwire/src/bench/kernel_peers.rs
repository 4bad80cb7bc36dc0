//! What others select with, for `bench kernels --peers`.

use std::hint::black_box;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::kernels::{Inputs, Row, bytes};

const SCRIPT: &str = include_str!("kernel_peers.py");

/// A selection of the k largest with the standard library, and with those libraries of Python that are there.
pub(super) fn peers(inputs: &Inputs) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![select_nth_unstable(inputs)?];
    // They read as many values.
    let read_ms = rows[0].read_ms;
    for (name, median_ms) in python(inputs)? {
        let gb_per_s = size_of_val(&inputs.values[..]) as f64 / (median_ms * 1e6);
        let (dim, density) = (inputs.args.dim, inputs.args.density);
        rows.push(Row {
            kernel: name,
            dim,
            density,
            median_ms,
            read_ms,
            ratio: median_ms / read_ms,
            gb_per_s,
            ns_per_entry: None,
            code: None,
        });
    }
    Ok(rows)
}

/// Of the indices by magnitude, then what it selected in order.
fn select_nth_unstable(inputs: &Inputs) -> anyhow::Result<Row> {
    let (values, k) = (&inputs.values, inputs.k());
    inputs.measure("select_nth_unstable", &[bytes(values)], None, || {
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        let magnitude = |index: &u32| values[*index as usize].abs();
        order.select_nth_unstable_by(k - 1, |a, b| magnitude(b).total_cmp(&magnitude(a)));
        order.truncate(k);
        order.sort_unstable();
        black_box(&order);
        Ok(())
    })
}

/// Names and milliseconds. Nothing where there is no Python.
fn python(inputs: &Inputs) -> anyhow::Result<Vec<(String, f64)>> {
    let numbers = [inputs.values.len(), inputs.k(), inputs.args.iterations as usize].map(|n| n.to_string());
    let output = Command::new("python3").args(["-c", SCRIPT]).args(numbers).stderr(Stdio::inherit()).output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        output => output.context("python3 could not be started")?,
    };
    ensure!(output.status.success(), "python3 failed ({}) while it measured numpy and torch", output.status);
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(lines: &str) -> anyhow::Result<Vec<(String, f64)>> {
    let parse = |line: &str| {
        let (name, median_ms) = line.split_once(' ')?;
        Some((name.to_owned(), median_ms.parse().ok()?))
    };
    lines.lines().map(|line| parse(line).with_context(|| format!("python3 printed {line:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_name_and_a_time() {
        let rows = parse("numpy_argpartition 530.5\ntorch_topk 330\n").unwrap();
        assert_eq!(rows, [("numpy_argpartition".to_owned(), 530.5), ("torch_topk".to_owned(), 330.0)]);
        assert_eq!(parse("").unwrap(), []);
        for bad in ["numpy", "numpy fast"] {
            assert!(parse(bad).unwrap_err().to_string().contains(bad));
        }
    }
}
