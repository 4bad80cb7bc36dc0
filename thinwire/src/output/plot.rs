use std::ops::Range;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::train::Outcome;

const PANEL: (u32, u32) = (560, 360);
const TITLE_HEIGHT: u32 = 44;
pub(crate) const FONT: &str = "Helvetica, Arial, sans-serif";
pub(crate) const INK: RGBColor = RGBColor(40, 40, 40);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);
/// Colours that remain different to colour-blind eyes (Okabe and Ito).
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// Points of one curve: more cannot be told apart.
const POINTS: usize = 300;

/// An SVG picture: for each task the loss against steps and against the bytes that a worker sent.
pub(super) fn draw(outcomes: &[Outcome]) -> anyhow::Result<String> {
    let mut tasks: Vec<&str> = outcomes.iter().map(|outcome| outcome.task).collect();
    tasks.dedup();
    let mut svg = String::new();
    let size = (2 * PANEL.0, TITLE_HEIGHT + PANEL.1 * tasks.len() as u32);
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let workers = outcomes.first().map_or(0, |outcome| outcome.workers);
        let title = format!("Training loss of {workers} workers");
        let root = root.titled(&title, (FONT, 24).into_font().color(&INK)).map_err(failed)?;
        for (panels, task) in root.split_evenly((tasks.len(), 1)).iter().zip(tasks) {
            let (left, right) = panels.split_horizontally(PANEL.0);
            let curves: Vec<_> = outcomes.iter().filter(|o| o.task == task).map(Smooth::new).collect();
            panel(&left, &format!("{task}: loss by step"), "step", false, &curves)?;
            let sent = "MB sent by a worker so far (logarithmic)";
            panel(&right, &format!("{task}: loss by traffic"), sent, true, &curves)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

pub(crate) fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("the picture cannot be drawn: {error}")
}

/// A run's curve as it is drawn.
struct Smooth<'a> {
    name: &'a str,
    steps: Vec<f64>,
    megabytes: Vec<f64>,
    losses: Vec<f64>,
}

impl<'a> Smooth<'a> {
    /// A decaying mean of the losses over a fortieth of the run, at some hundred steps.
    fn new(outcome: &'a Outcome) -> Self {
        let curve = &outcome.curve;
        let len = curve.losses.len();
        let weight = 1.0 / (1.0 + len as f64 / 40.0);
        let mut smooth =
            Self { name: outcome.algorithm, steps: Vec::new(), megabytes: Vec::new(), losses: Vec::new() };
        let (mut sum, mut total) = (0.0, 0.0);
        for (step, (loss, bytes)) in curve.losses.iter().zip(&curve.bytes).enumerate() {
            // Divided by the weights so far, or else the first losses would count too much.
            sum = (1.0 - weight) * sum + weight * loss;
            total = (1.0 - weight) * total + weight;
            if step % len.div_ceil(POINTS) == 0 || step + 1 == len {
                smooth.steps.push(step as f64 + 1.0);
                smooth.megabytes.push(bytes / 1e6);
                // The scale has no zero.
                smooth.losses.push((sum / total).max(1e-9));
            }
        }
        smooth
    }

    fn x(&self, by_traffic: bool) -> &[f64] {
        if by_traffic { &self.megabytes } else { &self.steps }
    }
}

/// The smallest and the largest of the positive numbers, a little apart.
pub(crate) fn bounds<'a>(numbers: impl Iterator<Item = &'a f64>, margin: f64) -> Option<Range<f64>> {
    let positive = numbers.copied().filter(|number| *number > 0.0);
    let (low, high) = positive.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    (high > 0.0).then(|| low / margin..high * margin)
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    title: &str,
    x_title: &str,
    by_traffic: bool,
    curves: &[Smooth<'_>],
) -> anyhow::Result<()> {
    let losses = bounds(curves.iter().flat_map(|curve| &curve.losses), 1.15);
    let along = bounds(curves.iter().flat_map(|curve| curve.x(by_traffic)), 1.05);
    let (Some(losses), Some(along)) = (losses, along) else {
        let style = (FONT, 18).into_font().color(&INK);
        return area.draw(&Text::new(format!("{title}: nothing"), (40, 40), style)).map_err(failed);
    };
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(title, (FONT, 18).into_font().color(&INK))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(60);
    if by_traffic {
        let mut chart = builder.build_cartesian_2d(along.log_scale(), losses.log_scale()).map_err(failed)?;
        lines(&mut chart, x_title, by_traffic, curves)
    } else {
        let mut chart = builder.build_cartesian_2d(0.0..along.end, losses.log_scale()).map_err(failed)?;
        lines(&mut chart, x_title, by_traffic, curves)
    }
}

type Chart<'a, B, X> = ChartContext<'a, B, Cartesian2d<X, LogCoord<f64>>>;

fn lines<'a, B: DrawingBackend + 'a, X: Ranged<ValueType = f64> + ValueFormatter<f64>>(
    chart: &mut Chart<'a, B, X>,
    x_title: &str,
    by_traffic: bool,
    curves: &[Smooth<'_>],
) -> anyhow::Result<()> {
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style((FONT, 14).into_font().color(&INK))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .x_desc(x_title)
        .y_desc("loss (logarithmic)")
        .x_label_formatter(&|x| short(*x))
        .y_labels(24)
        .y_label_formatter(&|y| sparse(*y))
        .draw()
        .map_err(failed)?;
    for (i, (curve, colour)) in curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let points = curve.x(by_traffic).iter().copied().zip(curve.losses.iter().copied());
        // The scale has no zero.
        let points = points.filter(|(x, _)| *x > 0.0);
        // Runs that end alike lie on each other: the earlier ones are wider and stay visible.
        let style = colour.stroke_width((curves.len() - i).min(4) as u32 + 1);
        chart
            .draw_series(LineSeries::new(points, style))
            .map_err(failed)?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(if by_traffic { SeriesLabelPosition::LowerLeft } else { SeriesLabelPosition::UpperRight })
        .label_font((FONT, 14).into_font().color(&INK))
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .draw()
        .map_err(failed)
}

/// A number on an axis, without a trail of zeros.
pub(crate) fn short(number: f64) -> String {
    let text = if number == 0.0 || number >= 0.01 { format!("{number:.4}") } else { format!("{number:.0e}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A number on a logarithmic axis; nothing where the next numbers are too close.
pub(crate) fn sparse(number: f64) -> String {
    let text = short(number);
    let digit = text.chars().find(|character| matches!(character, '1'..='9'));
    if matches!(digit, Some('4' | '6'..='9')) { String::new() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_axes_are_short() {
        let numbers = [0.0, 0.001, 0.01, 0.25, 1.0, 10.0, 2000.0];
        assert_eq!(numbers.map(short), ["0", "1e-3", "0.01", "0.25", "1", "10", "2000"]);
        assert_eq!([0.3, 0.4, 0.5, 0.9, 1.0].map(sparse), ["0.3", "", "0.5", "", "1"]);
    }

    #[test]
    fn bounds_leave_out_what_a_logarithm_cannot_show() {
        assert_eq!(bounds([0.0, 2.0, 8.0].iter(), 2.0), Some(1.0..16.0));
        assert_eq!(bounds([0.0, 0.0].iter(), 2.0), None);
        assert_eq!(bounds([].iter(), 2.0), None);
    }
}
