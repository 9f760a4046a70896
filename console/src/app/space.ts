// The space that a page is about, from its path.
import { useParams } from "react-router";
import { path, V1 } from "../api/client";

export interface Space {
  namespace: string;
  name: string;
  /** The space's pages, as a path of this console. */
  to: string;
  /** The API's paths: of the namespace, and of the space itself. */
  inNamespace: string;
  api: string;
}

export function spaceOf(namespace: string, name: string): Space {
  const inNamespace = path(V1, "namespaces", namespace);
  return {
    namespace,
    name,
    to: path("/spaces", namespace, name),
    inNamespace,
    api: path(`${inNamespace}/addressspaces`, name),
  };
}

export function useSpace(): Space {
  const { namespace, space } = useParams();
  return spaceOf(namespace ?? "", space ?? "");
}
