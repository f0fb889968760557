//! Data → one self-contained HTML page: words first, then figures with units, then tables that sort, then what reproduces it.
//!
//! Nothing is fetched: style and script are in the page. It reads without its script (figures are SVG, views are chosen
//! by radio buttons); the script adds tooltips, arrow keys, sorting, highlighting and downloads. Colours are classes, so
//! that light, dark and paper need no second drawing. Colours alone never tell two series apart: markers and labels do too.
//!
//! What a trace or a program is called comes from outside: all text goes through maud, which escapes it.

mod axes;
mod canvas;
mod chart;
mod draw;
mod grid;
mod page;

pub use flashsift_core::show;

pub use chart::{Axis, Bar, Chart, Ink, Layer, Line, Marks, Patch, Point, Scale, Unit};
pub use grid::Grid;
pub use page::{Block, Cell, Figure, Page, Reproduce, Section, Table, View};
