//! What a probe can read: for people who look for a field.

use super::binary::Binary;
use super::error::TraceError;
use super::planner::Planner;
use super::resolve::Scope;
use super::shape::Shape;
use super::spec::{At, FieldBase, FieldPath, FieldSpec, ProbeSpec, Provider};
use super::symbols;
use crate::escape::Escaped;
use serde::Serialize;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What is known of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Info {
    /// The sort of hook.
    #[serde(rename = "type")]
    pub provider: &'static str,
    /// What it hooks: for a tracepoint, `category:name`.
    #[serde(rename = "probe")]
    pub name: String,
    /// Where a function of a program or library is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<FilePlace>,
    /// What it gives; `None` if nobody tells.
    pub signature: Option<Signature>,
    /// The fields that were asked for; or those that events have if none are.
    pub fields: Vec<InfoField>,
}

/// A place in a program or library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FilePlace {
    /// The file.
    pub file: PathBuf,
    /// In bytes from its beginning.
    pub offset: u64,
}

/// What a function takes and returns, or a tracepoint gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Signature {
    /// The arguments, or fields.
    pub parameters: Vec<Parameter>,
    /// What a function returns, which may be `void`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<String>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its type in C.
    #[serde(rename = "type")]
    pub ty: String,
    /// Whether it points into the memory of a process.
    #[serde(rename = "user")]
    pub is_user: bool,
    /// Why it cannot be read, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A field of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InfoField {
    /// Its name.
    pub name: String,
    /// How it is shown: [`Shape::name`]. `None` if only its members can be read.
    pub shape: Option<&'static str>,
    /// Its type in C, if that is known.
    #[serde(rename = "type")]
    pub ty: Option<String>,
    /// The members that it has, or what it points to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// The way to it, as a field is written.
    pub path: String,
    /// Its type in C.
    #[serde(rename = "type")]
    pub ty: String,
}

impl Info {
    /// Looks a probe up. Takes no privilege but for tracepoints, whose formats are in tracefs.
    ///
    /// # Errors
    ///
    /// If there is no such probe, or a field that it names cannot be found.
    pub fn of(spec: &ProbeSpec) -> Result<Self, TraceError> {
        if spec.is_glob() {
            return Err(spec
                .error(0, "a probe is named in full here; `probe list` has names")
                .into());
        }
        let scope = Planner::default().scope(spec)?;
        let signature = scope.signature();
        let place = file_place(spec)?;
        if signature.is_none() {
            exists(spec)?;
        }
        let fields = match spec.fields() {
            Some(fields) => fields.iter().map(|field| asked(spec, &*scope, field)).collect(),
            None => Ok(defaults(&*scope, signature.as_ref())),
        };
        let (provider, name) = (spec.provider().name(), spec.name().to_owned());
        Ok(Self { provider, name, place, signature, fields: fields? })
    }

    /// The same, without the members of fields.
    #[must_use]
    pub fn without_members(mut self) -> Self {
        self.fields.iter_mut().for_each(|field| field.members.clear());
        self
    }
}

/// Where a function of a program or library is, if it is one.
fn file_place(spec: &ProbeSpec) -> Result<Option<FilePlace>, TraceError> {
    if !spec.provider().is_user() {
        return Ok(None);
    }
    let failed = |source| TraceError::Binary { spec: spec.clone(), source };
    let binary = Binary::open(spec.module().unwrap_or_default()).map_err(failed)?;
    let offset = binary.place(spec.name(), spec.offset()).map_err(failed)?;
    Ok(Some(FilePlace { file: binary.path().to_owned(), offset }))
}

/// Where types are not known, names may still be.
fn exists(spec: &ProbeSpec) -> Result<(), TraceError> {
    let is_function = matches!(spec.provider(), Provider::Kprobe | Provider::Kretprobe);
    let found = if is_function { symbols::look_up(spec.name()) } else { return Ok(()) };
    match found.count {
        0 => Err(TraceError::UnknownFunction { spec: spec.clone(), near: found.near }),
        _ => Ok(()),
    }
}

/// A field that was asked for. What cannot be read can have members that can.
fn asked(spec: &ProbeSpec, scope: &dyn Scope, field: &FieldSpec) -> Result<InfoField, TraceError> {
    let name = field.name.clone().unwrap_or_else(|| field.path.to_string());
    let (ty, members) =
        scope.look(&field.path).map_or((None, Vec::new()), |(ty, members)| (Some(ty), members));
    match scope.field(&field.path, field.ty, field.ty_at) {
        Ok((_, shape)) => Ok(InfoField { name, shape: Some(shape.name()), ty, members }),
        Err(_) if !members.is_empty() && field.ty.is_none() => {
            Ok(InfoField { name, shape: None, ty, members })
        }
        Err(error) => Err(spec.error(error.at, error.what).into()),
    }
}

/// The fields of events if none are asked for, and after them the arguments of which only members can be
/// read.
fn defaults(scope: &dyn Scope, signature: Option<&Signature>) -> Vec<InfoField> {
    let field = |name: &str, shape: Option<Shape>| {
        let base = match name {
            "retval" => FieldBase::Return,
            name => FieldBase::Name(name.to_owned()),
        };
        let path = FieldPath { base, at: At(0), steps: Vec::new() };
        let looked = scope.look(&path);
        let (ty, members) = looked.map_or((None, Vec::new()), |(ty, members)| (Some(ty), members));
        InfoField { name: name.to_owned(), shape: shape.map(|shape| shape.name()), ty, members }
    };
    let shown = scope.defaults();
    let is_shown = |name: &str| shown.iter().any(|(shown, ..)| shown == name);
    let parameters = signature.map_or(&[][..], |signature| &signature.parameters);
    let others = parameters.iter().filter(|one| one.unreadable.is_none() && !is_shown(&one.name));
    let others = others.map(|one| field(&one.name, None)).filter(|one| !one.members.is_empty());
    let named = shown.iter().map(|(name, _, shape)| field(name, Some(shape.clone())));
    named.chain(others).collect()
}

/// `(file: struct file *, buf: char * [user]) -> ssize_t`
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (n, parameter) in self.parameters.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{parameter}")?;
        }
        f.write_str(")")?;
        self.returns.as_ref().map_or(Ok(()), |returns| write!(f, " -> {returns}"))
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.ty)?;
        if self.is_user {
            f.write_str(" [user]")?;
        }
        if self.unreadable.is_some() {
            f.write_str(" [unreadable]")?;
        }
        Ok(())
    }
}

/// The signature, the fields, and whatever members they have, each in a line.
impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.signature, &self.place) {
            (Some(signature), _) => writeln!(f, "{}{signature}", self.name)?,
            (None, Some(FilePlace { file, offset })) => {
                let file = Escaped(file.as_os_str().as_bytes());
                writeln!(
                    f,
                    "{}: at {offset:#x} of {file}, which does not tell what it takes",
                    self.name
                )?;
            }
            (None, None) => writeln!(f, "{}: the kernel does not tell what it takes", self.name)?,
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
        Ok(())
    }
}
