//! An SVG backend for plotters whose colours are CSS classes.
//!
//! Plotters works in whole pixels and colours. A canvas is ten times as large as its figure, so
//! that rounding is invisible, and a colour encodes the number of a [`Class`].

use plotters::style::RGBColor;
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
    text_anchor::{HPos, VPos},
};
use std::{convert::Infallible, fmt::Write};

/// Canvas units in a pixel.
pub(crate) const UNITS: i32 = 10;
/// Font size in canvas units.
pub(crate) const TEXT: i32 = 12 * UNITS;

/// Classes that the style sheet defines.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Class {
    None,
    Grid,
    Axis,
    Label,
}

impl Class {
    pub(crate) fn color(self) -> RGBColor {
        RGBColor(self as u8, 0, 0)
    }
}

fn class(color: BackendColor) -> &'static str {
    match color.rgb.0 {
        n if n == Class::Grid as u8 => "grid",
        n if n == Class::Axis as u8 => "axis",
        n if n == Class::Label as u8 => "label",
        _ => "none",
    }
}

/// Estimates the width of a text in the widest of the common fonts, in canvas units.
pub(crate) fn text_width(text: &str) -> i32 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | 't' | '.' | ',' | ':' | ' ' | '\'' | '\u{202f}' => 3.8,
        'm' | 'w' | 'M' | 'W' | '%' | '…' => 11.5,
        _ => 7.4,
    };
    (text.chars().map(width).sum::<f64>() * f64::from(UNITS)) as i32
}

pub(crate) struct Canvas<'a> {
    pub(crate) out: &'a mut String,
    pub(crate) size: (u32, u32),
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

impl DrawingBackend for Canvas<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        let class = class(color);
        let _ = write!(self.out, r#"<path class="{class}" d="M{x} {y}h1"/>"#);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        if style.color().rgb.0 == Class::None as u8 {
            return Ok(());
        }
        let _ = write!(self.out, r#"<path class="{}" d=""#, class(style.color()));
        for (n, (x, y)) in path.into_iter().enumerate() {
            let _ = write!(self.out, "{}{x} {y}", if n == 0 { "M" } else { "L" });
        }
        self.out.push_str(r#""/>"#);
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Drawn {
        let anchor = match style.anchor().h_pos {
            HPos::Left => "start",
            HPos::Center => "middle",
            HPos::Right => "end",
        };
        let down = match style.anchor().v_pos {
            VPos::Top => TEXT * 3 / 4,
            VPos::Center => TEXT * 3 / 8,
            VPos::Bottom => 0,
        };
        let text = maud::html! { (text) }.into_string();
        let _ = write!(
            self.out,
            r#"<text class="label" text-anchor="{anchor}" x="{x}" y="{}">{text}</text>"#,
            y + down
        );
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok((text_width(text) as u32, TEXT as u32))
    }
}
