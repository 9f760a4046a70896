// Fields of an object as parts of a form. A field names its place in the object, so one list makes the form of a
// wizard and that of an edit.
import {
  Checkbox,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  NumberInput,
  TextArea,
  TextInput,
} from "@patternfly/react-core";
import type { ReactElement } from "react";

export interface Field {
  /** Where it is, as `spec.limits.maxBytes`. */
  path: string;
  label: string;
  kind: "text" | "number" | "choice" | "flag" | "lines" | "long";
  help?: string;
  options?: { value: string; label?: string }[];
  /** What stands there while nothing is chosen. */
  none?: string;
  required?: boolean;
}

type Tree = Record<string, unknown>;

export function at(object: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((found, key) => (found as Tree | undefined)?.[key], object);
}

/** Returns a copy with a value in its place; nothing (undefined) takes the field out, and what it leaves empty. */
export function put<T>(object: T, path: string, value: unknown): T {
  const [key, ...rest] = path.split(".");
  const copy: Tree = { ...(object as Tree) };
  const next = rest.length ? put((copy[key!] as Tree | undefined) ?? {}, rest.join("."), value) : value;
  const empty = next === undefined || next === "" || (rest.length > 0 && Object.keys(next as Tree).length === 0);
  if (empty) delete copy[key!];
  else copy[key!] = next;
  return copy as T;
}

interface Props<T> {
  field: Field;
  object: T;
  onChange: (object: T) => void;
  error?: string;
}

export function FieldInput<T>({ field, object, onChange, error }: Props<T>): ReactElement {
  const id = `field-${field.path}`;
  const value = at(object, field.path);
  const set = (next: unknown) => onChange(put(object, field.path, next));
  const described = field.help || error ? `${id}-help` : undefined;
  const validated = error ? "error" : "default";
  let input: ReactElement;
  if (field.kind === "flag") {
    return (
      <FormGroup fieldId={id}>
        <Checkbox id={id} label={field.label} description={field.help} isChecked={value === true} onChange={(_, on) => set(on ? true : undefined)} />
      </FormGroup>
    );
  }
  if (field.kind === "choice") {
    input = (
      <FormSelect id={id} value={(value as string | undefined) ?? ""} onChange={(_, next) => set(next)} aria-describedby={described} validated={validated}>
        {!field.required && <FormSelectOption value="" label={field.none ?? "As the plan says"} />}
        {field.options?.map((option) => <FormSelectOption key={option.value} value={option.value} label={option.label ?? option.value} />)}
      </FormSelect>
    );
  } else if (field.kind === "number") {
    const step = (by: number) => set(Math.max(0, ((value as number | undefined) ?? 0) + by));
    input = (
      <NumberInput
        inputProps={{ id, "aria-describedby": described }}
        inputAriaLabel={field.label}
        minusBtnAriaLabel={`${field.label}: less`}
        plusBtnAriaLabel={`${field.label}: more`}
        value={(value as number | undefined) ?? ""}
        onMinus={() => step(-1)}
        onPlus={() => step(1)}
        onChange={(event) => {
          const text = (event.target as HTMLInputElement).value;
          set(text === "" ? undefined : Number(text));
        }}
        widthChars={12}
      />
    );
  } else if (field.kind === "long" || field.kind === "lines") {
    const text = field.kind === "lines" ? ((value as string[] | undefined) ?? []).join("\n") : ((value as string | undefined) ?? "");
    const change = (next: string) => set(field.kind === "lines" ? (next === "" ? undefined : next.split("\n")) : next);
    input = <TextArea id={id} value={text} onChange={(_, next) => change(next)} resizeOrientation="vertical" aria-describedby={described} validated={validated} />;
  } else {
    input = (
      <TextInput
        id={id}
        value={(value as string | undefined) ?? ""}
        onChange={(_, next) => set(next)}
        isRequired={field.required}
        aria-describedby={described}
        validated={validated}
        placeholder={field.none}
        autoComplete="off"
      />
    );
  }
  return (
    <FormGroup label={field.label} fieldId={id} isRequired={field.required}>
      {input}
      {described && (
        <FormHelperText>
          <HelperText id={described}>
            <HelperTextItem variant={error ? "error" : "default"}>{error ?? field.help}</HelperTextItem>
          </HelperText>
        </FormHelperText>
      )}
    </FormGroup>
  );
}
