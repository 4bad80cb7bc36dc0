//! Pictures: times against numbers of ranks, and messages between ranks over time.

use plotters::prelude::*;
use testkit::sim::Record;

use super::report::Row;
use crate::output::plot::{COLOURS, FONT, GRID, INK, bounds, failed, short, sparse};

const SIZE: (u32, u32) = (760, 480);

/// Time against ranks: simulated as dots, the formula as a line.
pub(super) fn times(rows: &[Row]) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let ranks: Vec<f64> = rows.iter().map(|row| row.ranks as f64).collect();
        let times = rows.iter().flat_map(|row| [&row.virtual_ms, &row.formula_ms]);
        // The scale has no zero: one rank takes no time.
        let (Some(x), Some(y)) = (bounds(ranks.iter(), 1.2), bounds(times, 1.3)) else {
            let style = (FONT, 18).into_font().color(&INK);
            root.draw(&Text::new("No message was sent.", (40, 40), style)).map_err(failed)?;
            root.present().map_err(failed)?;
            drop(root);
            return Ok(svg);
        };
        let mut chart = ChartBuilder::on(&root)
            .caption("Simulated time of a sum", (FONT, 20).into_font().color(&INK))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style((FONT, 14).into_font().color(&INK))
            .axis_desc_style((FONT, 15).into_font().color(&INK))
            .x_desc("ranks (logarithmic)")
            .y_desc("ms (logarithmic); dots: simulated, lines: formula")
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| sparse(*y))
            .draw()
            .map_err(failed)?;
        for (curve, colour) in rows.chunk_by(|a, b| a.algorithm == b.algorithm).zip(COLOURS.iter().cycle()) {
            let shown = || curve.iter().filter(|row| row.virtual_ms > 0.0);
            let line = shown().map(|row| (row.ranks as f64, row.formula_ms));
            let dots = shown().map(|row| Circle::new((row.ranks as f64, row.virtual_ms), 4, colour.filled()));
            let style = colour.stroke_width(2);
            let name = curve.first().map_or("", |row| row.algorithm.as_str());
            chart
                .draw_series(LineSeries::new(line, style))
                .map_err(failed)?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            chart.draw_series(dots).map_err(failed)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 14).into_font().color(&INK))
            .background_style(WHITE.mix(0.85))
            .border_style(GRID)
            .draw()
            .map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// Messages of a picture: more cannot be told apart.
const MESSAGES: usize = 5_000;

/// Each message as a line from its sender, when it leaves, to its receiver, when it is there.
pub(super) fn messages(trace: &[Record]) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (1000, 600)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let shown = trace.get(..MESSAGES).unwrap_or(trace);
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let end = shown.iter().map(|record| ms(record.arrived)).fold(1e-6, f64::max);
        let ranks = shown.iter().map(|record| record.from.max(record.to).0).max().unwrap_or(0);
        let title = if shown.len() < trace.len() {
            format!("The first {MESSAGES} of {} messages", trace.len())
        } else {
            format!("{} messages", trace.len())
        };
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 20).into_font().color(&INK))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..end, -0.5..f64::from(ranks) + 0.5)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .label_style((FONT, 14).into_font().color(&INK))
            .axis_desc_style((FONT, 15).into_font().color(&INK))
            .x_desc("ms")
            .y_desc("rank")
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .draw()
            .map_err(failed)?;
        let lines = shown.iter().map(|record| {
            let colour = COLOURS[record.tag.number as usize % COLOURS.len()];
            let (from, to) = (f64::from(record.from.0), f64::from(record.to.0));
            PathElement::new([(ms(record.sent), from), (ms(record.arrived), to)], colour.mix(0.7))
        });
        chart.draw_series(lines).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}
