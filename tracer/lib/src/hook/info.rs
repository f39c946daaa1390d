//! What a probe can read, for users who look for a field.

use super::architecture::Architecture;
use super::{Host, of};
use crate::error::TraceError;
use crate::resolve::shape::Shape;
use crate::resolve::signature::{Member, NotShown, Signature};
use crate::resolve::{FieldSource, buffer_or_field};
use crate::spec::{At, FieldBase, FieldPath, FieldSpec, ProbeSpec};
use probe_sys::escape::Escaped;
use serde::Serialize;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Describes a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Info {
    /// The type of hook.
    #[serde(rename = "type")]
    pub provider: &'static str,
    /// The name of the hook: `category:name` for a tracepoint.
    #[serde(rename = "probe")]
    pub name: String,
    /// The location of a function in a program or library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<FileOffset>,
    /// Whether the hook is at an offset in a function.
    #[serde(skip)]
    is_inside: bool,
    /// The signature; `None` if it is not known.
    pub signature: Option<Signature>,
    /// The requested fields or, if there are none, the fields that events have by default.
    pub fields: Vec<InfoField>,
    /// What the default fields leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<NotShown>,
}

/// A location in a program or library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileOffset {
    /// The file.
    pub file: PathBuf,
    /// The offset in bytes from the beginning of the file.
    pub offset: u64,
}

/// A field of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InfoField {
    /// Its name.
    pub name: String,
    /// The format that it is printed in: [`Shape::name`]. `None` if only its members can be read.
    pub shape: Option<&'static str>,
    /// Its type in C, if known.
    #[serde(rename = "type")]
    pub ty: Option<String>,
    /// Its members, or those of what it points to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

impl Info {
    /// Looks a probe up. Only tracepoints take privileges, because their formats are in tracefs.
    ///
    /// # Errors
    ///
    /// If there is no such probe, or if a field that the spec names cannot be found.
    pub fn of(spec: &ProbeSpec) -> Result<Self, TraceError> {
        if spec.is_glob() {
            return Err(spec.error(0, "name the probe in full; `probe list` lists names").into());
        }
        let mut host = Host::default();
        let spec = &host.meant(spec.clone());
        Architecture::HERE.check(spec)?;
        let hook = of(spec.provider());
        let spec = &hook.own(spec, &mut host);
        let source = hook.fields(spec, false, &mut host)?;
        let signature = source.signature();
        let place = hook.file_offset(spec)?;
        if signature.is_none() {
            hook.check(spec, &mut host)?;
        }
        let (fields, left_out) = match spec.fields() {
            Some(fields) => {
                let fields = fields.iter().map(|field| requested(spec, &*source, field));
                (fields.collect::<Result<Vec<_>, _>>(), Vec::new())
            }
            None => (Ok(defaults(&*source, signature.as_ref())), source.left_out()),
        };
        let (provider, name) = (spec.provider().name(), spec.site().into_owned());
        let is_inside = spec.offset() != 0;
        Ok(Self { provider, name, place, is_inside, signature, fields: fields?, left_out })
    }

    /// Drops the members of all fields.
    #[must_use]
    pub fn without_members(mut self) -> Self {
        self.fields.iter_mut().for_each(|field| field.members.clear());
        self
    }
}

/// Describes a requested field. A field that cannot be read may have members that can.
fn requested(
    spec: &ProbeSpec,
    source: &dyn FieldSource,
    field: &FieldSpec,
) -> Result<InfoField, TraceError> {
    let name = field.shown_name();
    let (ty, members) = source.look(&field.path).unzip();
    let members = members.unwrap_or_default();
    match buffer_or_field(source, field) {
        Ok((_, shape)) => Ok(InfoField { name, shape: Some(shape.name()), ty, members }),
        Err(_) if !members.is_empty() && field.ty.is_none() => {
            Ok(InfoField { name, shape: None, ty, members })
        }
        Err(error) => Err(spec.error(error.at, error.what).into()),
    }
}

/// The fields that events have by default, followed by the arguments of which only members can be
/// read.
fn defaults(source: &dyn FieldSource, signature: Option<&Signature>) -> Vec<InfoField> {
    let field = |name: &str, shape: Option<&Shape>| {
        let base = match name {
            "retval" => FieldBase::Return,
            name => FieldBase::Name(name.to_owned()),
        };
        let path = FieldPath { base, at: At(0), steps: Vec::new() };
        let (ty, members) = source.look(&path).unzip();
        let (name, shape) = (name.to_owned(), shape.map(Shape::name));
        InfoField { name, shape, ty, members: members.unwrap_or_default() }
    };
    let shown = source.defaults();
    let is_shown = |name: &str| shown.iter().any(|(shown, ..)| shown == name);
    let parameters = signature.map_or(&[][..], |signature| &signature.parameters);
    let others = parameters.iter().filter(|one| one.unreadable.is_none() && !is_shown(&one.name));
    let others = others.map(|one| field(&one.name, None)).filter(|one| !one.members.is_empty());
    let named = shown.iter().map(|(name, _, shape)| {
        let buffer = buffer_or_field(source, &FieldSpec::named(name)).ok();
        let shape = buffer.map_or_else(|| shape.clone(), |(_, shape)| shape);
        field(name, Some(&shape))
    });
    named.chain(others).collect()
}

/// Prints the signature, the fields and their members, one to a line.
impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.signature, &self.place) {
            (Some(signature), _) => writeln!(f, "{}{signature}", self.name)?,
            (None, Some(FileOffset { file, offset })) => {
                let file = Escaped(file.as_os_str().as_bytes());
                writeln!(f, "{}: at {offset:#x} of {file}, without a known signature", self.name)?;
                if self.fields.iter().any(|field| field.name == "arg0") {
                    writeln!(
                        f,
                        "  (arg0 to arg5 are the first integers and pointers: arguments in floating point are not counted)"
                    )?;
                }
            }
            (None, None) if self.is_inside => {
                writeln!(f, "{}: inside a function, where arguments are not known", self.name)?;
            }
            (None, None) => writeln!(f, "{}: the kernel does not know its signature", self.name)?,
        }
        let paths = self.fields.iter().flat_map(|field| {
            std::iter::once(field.name.len())
                .chain(field.members.iter().map(|member| 2 + member.path.len()))
        });
        let width = paths.max().unwrap_or(0);
        for field in &self.fields {
            let (shape, ty) = (field.shape.unwrap_or("-"), field.ty.as_deref().unwrap_or(""));
            writeln!(f, "{}", format!("  {:<width$}  {shape:<8}  {ty}", field.name).trim_end())?;
            for Member { path, ty } in &field.members {
                writeln!(f, "    {path:<0$}  {1:8}  {ty}", width - 2, "")?;
            }
        }
        self.left_out.iter().try_for_each(|one| writeln!(f, "  not shown: {one}"))
    }
}
