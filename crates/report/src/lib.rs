//! Turns data into one self-contained HTML page: text first, then figures with units, then sortable
//! tables, then the commands that reproduce it.
//!
//! The page fetches nothing: style and script are inside. It is readable without its script,
//! because figures are SVG and views are chosen by radio buttons. The script adds tooltips, arrow
//! keys, sorting, highlighting and downloads. Colours are classes, so one drawing serves light,
//! dark and paper. Series differ in markers and labels as well as colours.
//!
//! Names of traces and programs come from outside: all text passes through maud, which escapes it.

mod axes;
mod canvas;
mod chart;
mod draw;
mod grid;
mod page;

pub use chart::{Axis, Bar, Chart, Ink, Layer, Line, Marks, Patch, Point, Scale, Unit};
pub use flashsift_events::show;
pub use grid::Grid;
pub use page::{Block, Cell, Figure, Page, Reproduce, Section, Table, View};
